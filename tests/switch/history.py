"""Random histories of the switch in the simulator, with kills, leaves, joins and partitions: what must hold in each.

- A request has at most one handler. With `IfLost.NEXT`, a second one only after the first was lost: it was killed, has
  left, or was cut off from the program that handed it the request. One that was cut off may begin after the second.
- A request has exactly one end, and not later than a second after its deadline.
- A request that was handled was handled by the program that its reply names, and with the right reply.
- `NO_HANDLER` is never reported while a handler has been there, undisturbed, for some time.
- An observer gets each message at most once in each state, and the messages of a sender in order.

Every second history also has a program type that is started: some of these programs exit at once, some never register,
and the others join the channel.

As a program: `python -m tests.switch.history SEEDS`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from broadloom.switch.handlers import Handler, HandlerCall
from broadloom.switch.model import (
    Disposition,
    FailureReason,
    IfLost,
    MessageClass,
    MessageId,
    MessageState,
    Pattern,
    Scope,
    SwitchMessage,
    SwitchReply,
)
from broadloom.switch.observers import ObserverEntry
from broadloom.switch.outgoing import OutgoingMessage
from broadloom.switch.patterns import make_pattern
from broadloom.switch.program_types import ProgramType
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.simulation import TapeFactory
from broadloom.wire import PeerId
from tests.histories import SimHistory, main, run_history
from tests.switch.sim_runtime import SimProgram, SimSwitchRuntime

OPERATIONS = "put", "get", "work"
FILES = "alpha", "beta"
SESSIONS = "anna", "ben"
STABLE_S = 15.0
"""A handler that has been there this long, without a fault on the channel, is known to everyone."""
LATE_S = 1.0
HANDLES = (Pattern(True, ("calc",), program="calc", disposition=Disposition.QUEUE),)
PROGRAMS = {"calc": ProgramType("calc", handles=HANDLES)}
STARTED = ProgramType(
    "adder",
    start=("adder",),
    ready_s=4.0,
    again_after_s=1.0,
    idle_s=10.0,
    start_for=("ben",),
    handles=(Pattern(True, ("sum",), program="adder", disposition=Disposition.START),),
)


class Handling(NamedTuple):
    """A message in a handler."""

    program: "HistoryProgram"
    handed_by: "HistoryProgram"
    """The sender, or a host of programs."""
    turn: int
    """The position of this handler, or of the host, among those that the sender has asked."""


class Partition(NamedTuple):
    side: frozenset[SimNode]
    healed_at: float


@dataclass
class RequestRecord:
    sender: "HistoryProgram"
    out: OutgoingMessage
    sent_at: float
    timeout_s: float
    ends: list[SwitchReply] = field(default_factory=list)
    handlings: list[Handling] = field(default_factory=list)

    @property
    def message(self) -> SwitchMessage:
        return self.out.message

    def turn_of(self, program: "HistoryProgram", handed_by: "HistoryProgram") -> int:
        """The last one of the program, as a handler or as a host of its own type, or of the host that passed it on."""
        kind = program.program
        possible = (program.peer_id, ""), (program.peer_id, kind), (handed_by.peer_id, kind)
        return max(turn for turn, asked in enumerate(self.out.asked) if asked in possible)


class HistoryRuntime(SimSwitchRuntime):
    """Its programs are started in the same simulation."""

    history: "History"

    def start_program(self, program: ProgramType, on_exit: Callable[[str], None]) -> SimProgram:
        return StartedProgram(self.history, self, program, on_exit)


class StartedProgram(SimProgram):
    """A program that a host has started: it exits at once, never registers, or joins the channel."""

    def __init__(
        self, history: "History", host: HistoryRuntime, program: ProgramType, on_exit: Callable[[str], None]
    ) -> None:
        super().__init__(program, on_exit)
        self._history = history
        self._host = host
        self._node: SimNode | None = None
        self._running: HistoryProgram | None = None
        chance = history.random.random()
        history.counts["started"] += 1
        if chance < 0.2:
            host.call_later(0.05, self.exit, "exited with status 1")
        elif chance < 0.9:
            self._node = history.sim.add_peer()
            self._node.call_later(0.1, self._open_switch)

    def _open_switch(self) -> None:
        assert self._node is not None
        if self._node.is_connected:
            self._running = HistoryProgram(self._history, self._node, self._host.core.session, self.program.name)
            self._running.on_gone = lambda: self._host.call_later(0.02, self.exit, "was killed")
            self._history.programs.append(self._running)
        else:
            self._node.call_later(0.1, self._open_switch)

    def terminate(self) -> None:
        super().terminate()
        if self._running is not None:
            self._running.leave()
        elif self._node is not None:
            self._node.kill()


class HistoryProgram:
    """A program that handles and observes at random, and replies now, later or never."""

    def __init__(
        self, history: "History", node: SimNode, session: str | None = None, program: str | None = None
    ) -> None:
        self.history = history
        self.node = node
        self.random = Random(history.random.getrandbits(64))
        self.session = session or self.random.choice(SESSIONS)
        self.program = program or ("calc" if self.random.random() < 0.15 else "")
        is_host = self.random.random() < 0.3
        runtime = HistoryRuntime(node, self.session, self.program, history.program_types if is_host else None)
        runtime.history = history
        self.core = runtime.core
        self.handlers: list[tuple[Handler, float]] = []
        self.observed: dict[ObserverEntry, dict[tuple[MessageId, MessageState], None]] = {}
        self.is_gone = False
        """Killed, or left."""
        self.on_gone: Callable[[], object] | None = None
        if self.program:
            self.add_handler("sum" if self.program == STARTED.name else "calc", None)
        for _ in range(self.random.randrange(3)):
            self.register()
        if self.random.random() < 0.5:
            self.observe()

    @property
    def peer_id(self) -> PeerId:
        return self.core.runtime.peer_id

    def register(self) -> None:
        self.add_handler(self.random.choice(OPERATIONS), self.random.choice([None, *FILES]))

    def add_handler(self, operation: str, file: str | None) -> None:
        rank = self.random.randrange(3)
        pattern = make_pattern(True, operation, file=file, scope=None, message_class=None, state=None, rank=rank)
        handler = Handler(pattern, self.on_call, self.random.choice([1, 64]))
        self.handlers.append((handler, self.node.clock.now))
        self.core.add_handler(handler)

    def unregister(self) -> None:
        if self.handlers:
            handler, _ = self.handlers.pop(self.random.randrange(len(self.handlers)))
            self.core.remove_handler(handler)

    def observe(self) -> None:
        file = self.random.choice([None, *FILES])
        state = self.random.choice([None, None, MessageState.STARTED, MessageState.ACCEPTED])
        pattern = make_pattern(False, None, file=file, scope=None, message_class=None, state=state, rank=0)
        entry = ObserverEntry(pattern, lambda message: self.on_copy(entry, message))
        self.observed[entry] = {}
        self.core.add_observer(entry)

    def kill(self) -> None:
        self._go()
        self.node.kill()

    def leave(self) -> None:
        if not self.is_gone:
            self._go()
            self.core.close()
            self.node.leave()

    def _go(self) -> None:
        self.is_gone = True
        if self.on_gone is not None:
            self.on_gone()

    # -- what it gets

    def on_copy(self, entry: ObserverEntry, message: SwitchMessage) -> None:
        seen = self.observed[entry]
        if (message.id, message.state) in seen:
            self.history.fail(f"{self.node} observes {message.id} {message.state.name} twice")
        counters = [
            each.counter for each, state in seen if each.peer_id == message.sender and state is MessageState.SENT
        ]
        if message.state is MessageState.SENT and counters and counters[-1] > message.id.counter:
            self.history.fail(f"{self.node} observes {message.id} after {counters[-1]}")
        seen[message.id, message.state] = None

    def on_call(self, call: HandlerCall) -> None:
        self.history.on_handled(self, call.message, call.peer_id)
        call.on_cancel = call.done
        match self.random.randrange(10):
            case 0:
                self.end(call, "decline")
            case 1:
                self.end(call, "refuse")
            case 2:
                pass  # never
            case 3 | 4 | 5:
                self.node.call_later(self.random.expovariate(1.0), self.end, call, "reply")
            case _:
                self.end(call, "reply")

    def end(self, call: HandlerCall, what: str) -> None:
        match what:
            case "reply":
                call.reply_unless_replied(call.message.data[::-1])
            case "decline":
                self.history.on_declined(self, call.message)
                call.decline_unless_replied("no")
            case _:
                call.refuse_unless_replied("never")
        call.done()


class History(SimHistory):
    def __init__(self, seed: int, *, peers: int = 7, tape_factory: TapeFactory | None = None) -> None:
        super().__init__(seed, tape_factory=tape_factory)
        self.random = Random(seed)
        self.programs: list[HistoryProgram] = []
        has_starts = seed % 2 == 0
        self.program_types = {**PROGRAMS, STARTED.name: STARTED} if has_starts else PROGRAMS
        self.operations = [*OPERATIONS, "calc", "sum"] if has_starts else [*OPERATIONS, "calc"]
        self.partitions: list[Partition] = []
        self.records: dict[MessageId, RequestRecord] = {}
        self.given_up: dict[MessageId, None] = {}
        self.at_once: list[tuple[HistoryProgram, SwitchMessage, PeerId]] = []
        """What a program handled before `send` returned."""
        self.disturbed_at = 0.0
        for _ in range(peers):
            self.join()

    @property
    def alive(self) -> list[HistoryProgram]:
        return [each for each in self.programs if each.node.is_connected]

    # -- what happens

    def join(self) -> None:
        self.disturbed_at = self.sim.clock.now
        node = self.sim.add_peer()
        if self.sim.run_until(lambda: node.is_connected, 60.0):
            self.programs.append(HistoryProgram(self, node))

    def fault(self) -> None:
        self.disturbed_at = self.sim.clock.now
        match self.random.randrange(5):
            case 0 | 1 if len(self.alive) > 3:
                self.random.choice(self.alive).kill()
            case 2 if len(self.alive) > 3:
                self.random.choice(self.alive).leave()
            case 3:
                side = self.sim.sample(round(len(self.sim.alive) * 0.5))
                self.partitions.append(Partition(frozenset(side), math.inf))
                self.sim.partition(side)
                self.sim.run_for(self.random.choice([1.0, 12.0]))
                self.sim.heal()
                self.partitions[-1] = self.partitions[-1]._replace(healed_at=self.sim.clock.now)
                self.disturbed_at = self.sim.clock.now
            case _:
                self.join()

    def send(self) -> None:
        if not self.alive:
            return
        sender = self.random.choice(self.alive)
        operation = self.random.choice(self.operations)
        file = self.random.choice(["", *FILES])
        scope = self.random.choice(list(Scope)[1:]) if file else Scope.SESSION
        kind = MessageClass.NOTICE if self.random.random() < 0.2 else MessageClass.REQUEST
        data = b"%d" % self.random.getrandbits(32)
        timeout_s = self.random.choice([0.5, 3.0, 20.0])
        if_lost = IfLost.NEXT if self.random.random() < 0.3 else IfLost.FAIL
        early: list[SwitchReply] = []
        out = sender.core.send(
            kind,
            operation,
            data,
            lambda step: self.on_step(step, early),
            timeout_s=timeout_s,
            scope=scope,
            file=file,
            if_lost=if_lost,
        )
        record = RequestRecord(sender, out, self.sim.clock.now, timeout_s)
        self.records[out.message.id] = record
        at_once, self.at_once = self.at_once, []
        for program, message, peer_id in at_once:
            self.on_handled(program, message, peer_id)
        for step in early:
            self.on_step(step, early)
        if self.random.random() < 0.03:
            sender.core.sender.give_up(out)
            del self.records[out.message.id]
            self.given_up[out.message.id] = None

    def on_step(self, step: SwitchReply, early: list[SwitchReply]) -> None:
        record = self.records.get(step.id)
        if record is None:
            early.append(step)
            return
        is_notice = record.message.message_class is MessageClass.NOTICE
        if step.is_end or (is_notice and step.state is MessageState.QUEUED):
            self.on_end(record, step)

    # -- what must hold

    def on_handled(self, program: HistoryProgram, message: SwitchMessage, peer_id: PeerId) -> None:
        record = self.records.get(message.id)
        if record is None:
            if message.id not in self.given_up:
                self.at_once.append((program, message, peer_id))  # it is being sent at this moment
            return
        self.counts["handled by a started program"] += program.program == STARTED.name
        handed_by = next(each for each in self.programs if each.peer_id == peer_id)
        record.handlings.append(Handling(program, handed_by, record.turn_of(program, handed_by)))
        if len(record.handlings) > 1:
            self.check_repeated(record)
        if message.scope.is_local and program.session != record.sender.session:
            self.fail(f"{program.node} handles {message.id} of another session")

    def check_repeated(self, record: RequestRecord) -> None:
        message, nodes = record.message, [each.program.node for each in record.handlings]
        if message.if_lost is not IfLost.NEXT:
            self.fail(f"{message.id} has two handlers: {nodes}")
        last_turn = max(each.turn for each in record.handlings)
        not_lost = [each for each in record.handlings if not self.is_lost(record, each)]
        if len(not_lost) > 1 or any(each.turn < last_turn for each in not_lost):
            self.fail(f"{message.id} has a second handler, but {not_lost[0].program.node} was not lost: {nodes}")
        self.counts["handled again"] += 1

    def is_lost(self, record: RequestRecord, handling: Handling) -> bool:
        """Whether the sender could lose this handler, or the host that handed the request to it."""
        program, host, _ = handling
        is_cut_off = self.were_separated(host, program, record.sent_at) or self.were_separated(
            record.sender, host, record.sent_at
        )
        return program.is_gone or host.is_gone or is_cut_off

    def were_separated(self, one: HistoryProgram, other: HistoryProgram, since: float) -> bool:
        return any(
            (one.node in partition.side) != (other.node in partition.side)
            for partition in self.partitions
            if partition.healed_at > since
        )

    def on_declined(self, program: HistoryProgram, message: SwitchMessage) -> None:
        if message.message_class is MessageClass.NOTICE:
            return
        record = self.records.get(message.id)
        if record is not None:
            record.handlings = [each for each in record.handlings if each.program is not program]
        self.at_once = [each for each in self.at_once if each[0] is not program or each[1].id != message.id]

    def on_end(self, record: RequestRecord, end: SwitchReply) -> None:
        now = self.sim.clock.now
        record.ends.append(end)
        self.counts[end.reason.name if end.reason is not None else end.state.name] += 1
        if len(record.ends) > 1:
            self.fail(f"{end.id} has two ends: {record.ends[0].state.name}, {end.state.name}")
        if now > record.sent_at + record.timeout_s + LATE_S:
            self.fail(f"{end.id} ended {now - record.sent_at:.1f} s after it was sent, beyond {record.timeout_s:g} s")
        if record.message.message_class is MessageClass.NOTICE:
            return
        if end.state is MessageState.HANDLED:
            handled_by = [each.program.peer_id for each in record.handlings]
            if end.handler not in handled_by:
                self.fail(f"{end.id} was handled by {handled_by}, not by {end.handler}")
            if end.data != record.message.data[::-1]:
                self.fail(f"{end.id} has the reply of another request")
        if end.reason is FailureReason.NO_HANDLER:
            self.check_no_handler(record)

    def check_no_handler(self, record: RequestRecord) -> None:
        if record.handlings:
            self.fail(f"{record.message.id} ends with NO_HANDLER, but was handled")
        since = min(record.sent_at, self.sim.clock.now) - STABLE_S
        if self.disturbed_at > since:
            return
        sender = record.sender
        for program in self.alive:
            for handler, registered_at in program.handlers:
                is_local = program.session == sender.session
                is_named = is_local or handler.pattern.files is not None
                if registered_at < since and is_named and handler.pattern.matches(record.message, is_local=is_local):
                    self.fail(f"{record.message.id} ends with NO_HANDLER, but {program.node} handles it")

    def check_all_ended(self) -> None:
        for record in self.records.values():
            if not record.ends and record.sender.node.is_connected:
                self.fail(f"{record.message.id} of {record.message.operation!r} has no end")

    def run(self, rounds: int = 12) -> None:
        self.sim.run_for(3.0)
        for _ in range(rounds):
            for _ in range(self.random.randrange(12)):
                self.send()
                self.sim.run_for(self.random.expovariate(5.0))
            chance = self.random.random()
            if self.alive and chance < 0.2:
                self.random.choice(self.alive).register()
            elif self.alive and chance < 0.3:
                self.random.choice(self.alive).unregister()
            elif chance < 0.7:
                self.fault()
            elif chance < 0.8:
                self.sim.run_for(STABLE_S + 5.0)
        self.sim.run_for(25.0)
        self.check_all_ended()


def run_seed(seed: int) -> History:
    """Raises `HistoryError`."""
    return run_history(History(seed))


if __name__ == "__main__":
    main(run_seed)
