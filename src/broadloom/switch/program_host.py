"""`ProgramHost`: messages for programs that do not run. They wait in a queue, or the program is started.

The host takes the place of the sender for what it holds: it hands each message to one program of the type, in order,
once such a program has registered, and passes the result on. Messages of one's own session are private: only programs
of this session get them. Those about a file are shared: programs of other sessions that work on the file get them, too.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind
from broadloom.switch import settings
from broadloom.switch.codec import (
    HandlerCopy,
    QueueLength,
    Result,
    Verdict,
    decode,
    decode_result,
    handler_copy,
)
from broadloom.switch.handlers import HandlerCall, OnProgress, Respond, declined, failed
from broadloom.switch.launch_state import LaunchState
from broadloom.switch.model import Disposition, FailureReason, IfLost, MessageClass, MessageState, SwitchMessage
from broadloom.switch.program_types import ProgramType
from broadloom.switch.queue_store import QueueStore
from broadloom.switch.recording import LAUNCHED, QUEUED, record_handling
from broadloom.wire import PeerId, WireError
from broadloom.wire.direct_messages import RequestStatus

if TYPE_CHECKING:
    from broadloom.protocol.runtime import Timer
    from broadloom.switch.core import SwitchCore


class WaitingMessage:
    """A message that waits for a program, or is on its way to one."""

    def __init__(
        self, message: SwitchMessage, program: str, expires_at: float, respond: Respond | None, on_progress: OnProgress
    ) -> None:
        self.message = message
        self.program = program
        self.expires_at = expires_at
        self.respond = respond
        """None if it is queued: the sender knows, and a result follows."""
        self.on_progress = on_progress
        self.row: int | None = None
        self.direct: object | None = None
        self.call: HandlerCall | None = None
        self.is_forwarded = False
        self.is_ended = False


class ProgramHost:
    def __init__(self, core: "SwitchCore", types: Mapping[str, ProgramType], store: QueueStore) -> None:
        self._core = core
        self._runtime = core.runtime
        self.types = dict(types)
        self._store = store
        self._held: dict[str, deque[WaitingMessage]] = {name: deque() for name in self.types}
        self._in_flight: dict[WaitingMessage, PeerId] = {}
        self._launches = {name: LaunchState(core.runtime, each, self._on_not_started) for name, each in types.items()}
        self._queued_bytes: dict[PeerId, list[int]] = {}
        """Messages and bytes in the queue, by sender."""
        self._totals = [0, 0]
        self._timer: Timer | None = None
        self.uncertain_count = 0
        """Queued messages that were on their way to a program when this one crashed: they are not repeated."""
        self._load()

    def _load(self) -> None:
        now, wall_ms = self._runtime.now(), self._runtime.wall_time_ms()
        for stored in self._store.load():
            try:
                copy = decode(stored.copy)
            except WireError:
                copy = None
            if stored.is_marked or not isinstance(copy, HandlerCopy) or stored.program not in self.types:
                if stored.program in self.types or not isinstance(copy, HandlerCopy):
                    self.uncertain_count += stored.is_marked
                    self._store.remove(stored.row)
                continue
            message = copy.message
            expires_at = now + (stored.expires_at_ms - wall_ms) / 1000
            held = WaitingMessage(message, stored.program, expires_at, None, _ignore)
            held.row = stored.row
            self._count(held, 1)
            self._held[stored.program].append(held)
        self._schedule()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for launch in self._launches.values():
            launch.close()
        for held in [*self._in_flight, *(each for queue in self._held.values() for each in queue)]:
            if held.respond is not None and not held.is_ended:
                held.is_ended = True
                if held.is_forwarded and held.message.if_lost is IfLost.FAIL:  # declined, it would be handled twice
                    text = f"the switch that passed it to {held.program!r} was closed; it may be handled"
                    held.respond(failed(FailureReason.HANDLER_DIED, text))
                else:
                    held.respond(declined(FailureReason.NOT_STARTED, "the switch was closed"))
        self._store.close()

    def queued(self) -> list[WaitingMessage]:
        return [held for queue in self._held.values() for held in queue]

    def lengths(self) -> tuple[QueueLength, ...]:
        """How many messages wait for each program type."""
        return tuple(QueueLength(name, len(queue)) for name, queue in islice(self._held.items(), settings.NAMES_MAX))

    def drop(self, program: str | None = None) -> int:
        """Remove what is queued, for one program or for all. Requests end with `EXPIRED`."""
        dropped = [each for each in self.queued() if program in (None, each.program) and each.row is not None]
        for held in dropped:
            self._held[held.program].remove(held)
            self._finish(held, failed(FailureReason.EXPIRED, "removed from the queue"))
        return len(dropped)

    # -- taking a message

    def accept(
        self,
        message: SwitchMessage,
        program: str,
        timeout_s: float,
        respond: Respond,
        on_progress: OnProgress,
    ) -> WaitingMessage | None:
        """Hold a message for a program; declines it if that is not possible. The result can be cancelled."""
        kind = self.types.get(program)
        is_local = message.session == self._core.session
        pattern = (
            next((each for each in kind.handles if each.matches(message, is_local=is_local)), None) if kind else None
        )
        if kind is None or pattern is None:
            respond(declined(FailureReason.NO_HANDLER, f"no program type {program!r} for this here"))
            return None
        if not kind.is_allowed(message.session, self._core.session):
            text = f"{program!r} is not started for the session {message.session!r} (start_for)"
            respond(declined(FailureReason.NOT_ALLOWED, text))
            return None
        disposition = message.disposition or pattern.disposition
        now = self._runtime.now()
        held = WaitingMessage(message, program, now + timeout_s, respond, on_progress)
        if self._instance(held) is not None and not self._held[program]:
            self._held[program].append(held)
            self._flush(program)
        elif disposition is Disposition.QUEUE:
            return held if self._queue(held) else None
        elif disposition is Disposition.START:
            return held if self._hold_for_start(held) else None
        else:
            respond(declined(FailureReason.NO_HANDLER, f"{program!r} does not run"))
            return None
        return held

    def _queue(self, held: WaitingMessage) -> bool:
        message, (count, size) = held.message, self._totals
        own_count, own_size = self._queued_bytes.get(message.sender, (0, 0))
        length = len(message.data)
        if (
            count >= settings.QUEUE_MESSAGES_MAX
            or size + length > settings.QUEUE_BYTES_MAX
            or own_count >= settings.QUEUE_SENDER_MESSAGES_MAX
            or own_size + length > settings.QUEUE_SENDER_BYTES_MAX
        ):
            whose = "of this sender" if own_count else "of all senders"
            self._respond(
                held, declined(FailureReason.QUEUE_FULL, f"too many messages {whose} wait for {held.program!r}")
            )
            return False
        now, wall_ms = self._runtime.now(), self._runtime.wall_time_ms()
        if message.message_class is MessageClass.NOTICE:
            held.expires_at = now + settings.QUEUE_TTL_S
        copy = handler_copy(message, held.program, held.expires_at - now)
        held.row = self._store.add(held.program, copy, wall_ms, wall_ms + int((held.expires_at - now) * 1000))
        self._count(held, 1)
        self._held[held.program].append(held)
        record_handling(self._runtime.observer, message, QUEUED)
        self._respond(held, Result(Verdict.QUEUED, handler=self._runtime.peer_id, handler_program=held.program))
        held.respond = None
        self._schedule()
        return True

    def _hold_for_start(self, held: WaitingMessage) -> bool:
        problem = self._launches[held.program].start()
        if problem is not None:
            self._respond(held, declined(FailureReason.NOT_STARTED, problem))
            return False
        self._held[held.program].append(held)
        record_handling(self._runtime.observer, held.message, LAUNCHED)
        if held.message.wants_progress:
            held.on_progress(MessageState.STARTED, held.program)
        self._schedule()
        return True

    def cancel(self, held: WaitingMessage) -> None:
        """The sender no longer waits. What is queued stays, until its deadline."""
        if held.is_ended or held.respond is None:
            return
        held.is_ended, held.respond = True, None
        if held.is_forwarded:
            self._in_flight.pop(held, None)
            if held.direct is not None:
                self._runtime.give_up(held.direct)
            if held.call is not None:
                held.call.cancel()
        elif held in self._held[held.program]:
            self._held[held.program].remove(held)

    # -- handing over

    def on_directory_changed(self) -> None:
        for name, queue in self._held.items():
            if queue:
                self._flush(name)

    def _instances(self, held: WaitingMessage) -> Iterator[PeerId]:
        """Programs of the type that handle this message."""
        core, message = self._core, held.message
        for peer_id, body in core.directory.programs(held.program):
            is_own = body.session == core.session
            is_shared = not message.scope.is_local and core.directory.is_joined(body.session, message.file)
            if (is_own or is_shared) and any(
                pattern.is_handler
                and not pattern.program
                and pattern.matches(message, is_local=body.session == message.session)
                for pattern in body.patterns
            ):
                yield peer_id

    def _instance(self, held: WaitingMessage) -> PeerId | None:
        loads = list(self._in_flight.values())
        return min(self._instances(held), key=lambda peer_id: (loads.count(peer_id), peer_id), default=None)

    def _flush(self, name: str) -> None:
        """Hand over what waits, in order."""
        waiting, self._held[name] = self._held[name], deque()
        while waiting:
            held = waiting.popleft()
            is_full = sum(each.program == name for each in self._in_flight) >= settings.FORWARDS_MAX
            peer_id = None if is_full else self._instance(held)
            if peer_id is None:
                self._held[name].append(held)
            else:
                self._launches[name].on_ready()
                self._forward(held, peer_id)
        self._start_if_needed(name)

    def _start_if_needed(self, name: str) -> None:
        """A program that messages wait for may have ended meanwhile."""
        if any(held.row is None and self._instance(held) is None for held in self._held[name]):
            problem = self._launches[name].start()
            if problem is not None:
                self._on_not_started(name, problem)

    def _forward(self, held: WaitingMessage, peer_id: PeerId) -> None:
        if held.row is not None:
            self._store.mark(held.row, True)
        held.is_forwarded = True
        self._in_flight[held] = peer_id
        remaining_s = max(0.001, held.expires_at - self._runtime.now())
        if peer_id == self._runtime.peer_id:
            held.call = self._core.handlers.accept(
                held.message, peer_id, remaining_s, lambda result: self._on_result(held, result), held.on_progress
            )
            return
        held.direct = self._runtime.request(
            peer_id,
            handler_copy(held.message, held.program, remaining_s),
            remaining_s,
            lambda outcome: self._on_outcome(held, peer_id, outcome),
        )

    def _on_outcome(self, held: WaitingMessage, peer_id: PeerId, outcome: Outcome) -> None:
        if outcome.kind is OutcomeKind.REPLIED:
            self._on_result(held, decode_result(outcome.data))
        elif outcome.kind is OutcomeKind.GONE and outcome.sent:
            if held.message.if_lost is IfLost.NEXT:
                self._put_back(held)
            else:
                text = f"{held.program!r} at {peer_id:016x} is gone: {outcome.text}; it may have been handled"
                self._finish(held, failed(FailureReason.HANDLER_DIED, text))
        elif outcome.kind is OutcomeKind.NO_ANSWER and outcome.sent:
            self._finish(held, failed(FailureReason.TIMED_OUT, f"no reply of {held.program!r}"))
        elif outcome.kind is OutcomeKind.TOO_LARGE or outcome.status is RequestStatus.TOO_LARGE:
            self._finish(held, failed(FailureReason.TOO_LARGE, outcome.text))
        elif outcome.status in (RequestStatus.REFUSED, RequestStatus.FAILED):
            self._finish(held, failed(FailureReason.REFUSED, outcome.text))
        else:
            self._put_back(held)

    def _on_result(self, held: WaitingMessage, result: Result) -> None:
        if result.verdict is Verdict.DECLINED and result.reason is FailureReason.QUEUE_FULL:
            self._put_back(held)
        elif result.verdict is Verdict.DECLINED and held.respond is None:
            self._finish(held, failed(FailureReason.ALL_DECLINED, result.text))
        else:
            self._finish(held, result)

    def _put_back(self, held: WaitingMessage) -> None:
        """It was not handled, and waits again at its place."""
        if held.is_ended:
            return
        self._in_flight.pop(held, None)
        held.is_forwarded, held.direct, held.call = False, None, None
        if held.row is not None:
            self._store.mark(held.row, False)
        queue = self._held[held.program]
        behind = [each for each in queue if held.row is not None and each.row is not None and each.row < held.row]
        queue.insert(len(behind), held)
        self._schedule()

    def _finish(self, held: WaitingMessage, result: Result) -> None:
        self._in_flight.pop(held, None)
        if held.is_ended:
            return
        held.is_ended = True
        message = held.message
        if held.row is not None:
            self._store.remove(held.row)
            self._count(held, -1)
        if held.respond is not None:
            held.respond(result)
        elif message.message_class is MessageClass.REQUEST:
            self._core.send_queued_result(message, result)
        self._launches[held.program].on_used()
        if self._held[held.program]:
            self._flush(held.program)

    def _respond(self, held: WaitingMessage, result: Result) -> None:
        assert held.respond is not None
        held.respond(result)

    def _count(self, held: WaitingMessage, sign: int) -> None:
        sender, length = held.message.sender, len(held.message.data)
        for totals in (self._totals, self._queued_bytes.setdefault(sender, [0, 0])):
            totals[0] += sign
            totals[1] += sign * length
        if not self._queued_bytes[sender][0]:
            del self._queued_bytes[sender]

    # -- programs and time

    def _on_not_started(self, program: str, problem: str) -> None:
        waiting = self._held[program]
        self._held[program] = deque(each for each in waiting if each.row is not None)
        for held in waiting:
            if held.row is None:
                self._finish(held, declined(FailureReason.NOT_STARTED, problem))

    def _schedule(self) -> None:
        if self._timer is None and (
            any(self._held.values()) or any(each.is_running for each in self._launches.values())
        ):
            self._timer = self._runtime.call_later(settings.EXPIRE_POLL_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._runtime.now()
        for name in self._held:
            for held in [each for each in self._held[name] if now >= each.expires_at]:
                if held in self._held[name]:
                    self._held[name].remove(held)
                    self._finish(held, failed(FailureReason.EXPIRED, f"the deadline passed before {name!r} ran"))
            if self._held[name]:
                self._flush(name)
            is_used = any(each.program == name for each in self._in_flight)
            self._launches[name].check_idle(is_used)
        self._schedule()


def _ignore(_state: MessageState, _program: str) -> None:
    """The sender of a message from the disk does not follow it."""
