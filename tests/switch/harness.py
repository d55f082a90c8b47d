"""One harness over two runtimes: the simulator, and real sockets in one process. Tests cannot tell them apart."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import broadloom
from broadloom.switch.core import SwitchCore
from broadloom.switch.handlers import Handler, HandlerCall
from broadloom.switch.model import (
    FailureReason,
    MessageClass,
    MessageState,
    Scope,
    SwitchMessage,
    SwitchReply,
)
from broadloom.switch.observers import ObserverEntry
from broadloom.switch.patterns import make_pattern
from broadloom.switch.program_types import ProgramType
from broadloom.switch.queue_store import QueueStore
from broadloom.switch.switch import Switch
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from tests.channel.joined import QUICK, unique_name
from tests.support import eventually
from tests.switch.sim_runtime import SimSwitchRuntime


class Sent:
    """A message that a program has sent, and what became of it."""

    def __init__(self) -> None:
        self.steps: list[SwitchReply] = []

    @property
    def end(self) -> SwitchReply | None:
        ends = [step for step in self.steps if step.is_end]
        assert len(ends) <= 1, f"two ends: {ends}"
        return ends[0] if ends else None

    @property
    def states(self) -> list[MessageState]:
        return [step.state for step in self.steps]

    @property
    def reason(self) -> FailureReason | None:
        return self.end.reason if self.end is not None else None


class Program:
    """One program with a switch, in either runtime."""

    def __init__(self, core: SwitchCore, is_simulated: bool) -> None:
        self.core = core
        self._is_simulated = is_simulated
        self.handled: list[SwitchMessage] = []
        self.observed: list[SwitchMessage] = []
        self.held: list[HandlerCall] = []
        """Requests that no handler has answered yet."""
        self._released: dict[HandlerCall, asyncio.Event] = {}

    @property
    def id(self) -> int:
        return self.core.runtime.peer_id

    def handle(
        self,
        operation: Any,
        *,
        behavior: str = "reply",
        rank: int = 0,
        concurrency: int = 64,
        **pattern: Any,
    ) -> Handler:
        """`behavior`: `reply` with the reversed data, `decline`, `refuse` or `hold`."""
        pattern = {"file": None, "scope": None, "message_class": None, **pattern}
        checked = make_pattern(True, operation, state=None, rank=rank, **pattern)

        def function(call: Any) -> Any:
            call = call if isinstance(call, HandlerCall) else call._call
            self.handled.append(call.message)
            match behavior:
                case "reply":
                    call.reply_unless_replied(call.message.data[::-1])
                case "decline":
                    call.decline_unless_replied("not for me")
                case "refuse":
                    call.refuse_unless_replied("never")
                case _:
                    self.held.append(call)
                    if not self._is_simulated:
                        return self._wait(call)
                    call.on_cancel = call.done
                    return None
            if self._is_simulated:
                call.done()
            return None

        handler = Handler(checked, function, concurrency)
        self.core.add_handler(handler)
        return handler

    async def _wait(self, call: HandlerCall) -> None:
        released = self._released[call] = asyncio.Event()
        await released.wait()

    def release(self, data: bytes = b"done") -> None:
        """Answer the oldest held request."""
        call = self.held.pop(0)
        call.reply_unless_replied(data)
        if self._is_simulated:
            call.done()
        else:
            self._released[call].set()

    def observe(self, operation: Any = None, **pattern: Any) -> ObserverEntry:
        pattern = {"file": None, "scope": None, "message_class": None, "state": None, **pattern}
        entry = ObserverEntry(make_pattern(False, operation, rank=0, **pattern), self.observed.append)
        self.core.add_observer(entry)
        return entry

    def request(self, operation: str, data: bytes = b"data", **options: Any) -> Sent:
        return self._send(MessageClass.REQUEST, operation, data, options)

    def notify(self, operation: str, data: bytes = b"data", **options: Any) -> Sent:
        return self._send(MessageClass.NOTICE, operation, data, options)

    def _send(self, message_class: MessageClass, operation: str, data: bytes, options: dict[str, Any]) -> Sent:
        sent = Sent()
        if "file" in options:
            options.setdefault("scope", Scope.FILE)
        self.core.send(message_class, operation, data, sent.steps.append, **{"timeout_s": 10.0, **options})
        return sent

    def sees(self, *others: "Program") -> bool:
        """Whether it knows the present registration of these programs."""
        for other in others:
            body = self.core.directory.get(other.id)
            if body is None or body.patterns != other.core.patterns() or other.core._is_changed:
                return False
        return self.core.directory.is_complete


class SwitchHarness(Protocol):
    programs: list[Program]

    async def add(
        self,
        session: str = "anna",
        program: str = "",
        programs: Mapping[str, ProgramType] | None = None,
        queue: QueueStore | None = None,
    ) -> Program: ...
    async def until(self, condition: Callable[[], object], within_s: float = 20.0) -> None: ...
    async def kill(self, program: Program) -> None: ...
    async def close(self) -> None: ...


async def settle(harness: SwitchHarness) -> None:
    """Every program knows what every other has registered."""
    programs = harness.programs
    await harness.until(lambda: all(one.sees(*programs) for one in programs))


class SimSwitchHarness:
    def __init__(self) -> None:
        self.programs: list[Program] = []
        self._sim = Simulation(11, SimulationSettings(roster=True))
        self._nodes: dict[Program, Any] = {}

    async def add(self, session: str = "anna", program: str = "", programs: Any = None, queue: Any = None) -> Program:
        node = self._sim.add_peer()
        assert self._sim.run_until(lambda: node.is_connected, 30.0)
        added = Program(SimSwitchRuntime(node, session, program, programs, queue).core, True)
        self.programs.append(added)
        self._nodes[added] = node
        return added

    async def until(self, condition: Callable[[], object], within_s: float = 20.0) -> None:
        deadline = self._sim.clock.now + within_s
        while not condition():
            assert self._sim.clock.now < deadline, f"condition not met within {within_s:g} s"
            self._sim.run_for(0.01)

    async def kill(self, program: Program) -> None:
        self._nodes[program].kill()
        self.programs.remove(program)

    async def close(self) -> None:
        pass


class SocketSwitchHarness:
    def __init__(self) -> None:
        self.programs: list[Program] = []
        self._name = unique_name()
        self._switches: dict[Program, Switch] = {}

    async def add(self, session: str = "anna", program: str = "", programs: Any = None, queue: Any = None) -> Program:
        channel = await broadloom.connect(self._name, tls=False, settings=QUICK)
        switch = Switch(channel, session=session, program=program, programs=programs, store=queue)
        added = Program(switch._core, False)
        self.programs.append(added)
        self._switches[added] = switch
        return added

    async def until(self, condition: Callable[[], object], within_s: float = 20.0) -> None:
        await eventually(condition, timeout_s=within_s)

    async def kill(self, program: Program) -> None:
        switch = self._switches.pop(program)
        switch.channel.abort()
        self.programs.remove(program)
        await switch.aclose()

    async def close(self) -> None:
        for switch in self._switches.values():
            switch.channel.abort()
        for switch in self._switches.values():
            await switch.aclose()
