"""One harness over two runtimes: the simulator, and real sockets in one process. Tests cannot tell them apart."""

from collections.abc import Callable
from typing import Any, Protocol

import broadloom
from broadloom.mailboxes import Change, Mailboxes, MailboxEvent, MailboxSettings, MailboxStore, Synced
from broadloom.mailboxes.classes import class_number
from broadloom.mailboxes.letterbox import Letterbox
from broadloom.mailboxes.messages import WireLetter
from broadloom.mailboxes.model import Ack, Letter, Posted
from broadloom.mailboxes.own_mailboxes import PutResult
from broadloom.mailboxes.post_office import PostOffice
from broadloom.protocol import Tuning
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from tests.channel.joined import QUICK, unique_name
from tests.mailboxes.sim_runtime import SimProgram
from tests.support import eventually

QUICK_MAILBOXES = MailboxSettings(digest_interval_s=2.0, digest_reply_s=0.05, sync_timeout_s=1.0)


class Program:
    """One program with mailboxes, over either runtime."""

    def __init__(self, office: PostOffice, changes: list[Change], events: list[MailboxEvent]) -> None:
        self.office = office
        self.changes = changes
        self.events = events
        self.results: list[PutResult] = []
        self.calls: list[list[Letter]] = []
        """What each notification brought."""
        self.posted: list[list[Posted]] = []

    @property
    def id(self) -> int:
        return self.office.runtime.peer_id

    @property
    def is_synced(self) -> bool:
        return self.office.anti_entropy.is_synced

    def bind(self, name: str, number: int, *, copies: int = 1, while_here: bool = False, room: int = 1000) -> Letterbox:
        letterbox = Letterbox(room)
        letterbox.notify = lambda letters: self.calls.append(list(letters))
        found = class_number(number)
        self.office.own.bind(name, found, while_here=while_here, copies=copies, letterbox=letterbox)
        return letterbox

    def put(self, name: str, data: bytes, **options: Any) -> None:
        self.office.own.put(name, data, self.results.append, **options)

    def value(self, name: str, owner: str | None = None) -> bytes | None:
        found = [each for each in self.office.table.named(name) if owner in (None, each.owner)]
        return found[0].data if len(found) == 1 and found[0].is_valid else None

    def post(self, to: "Program", name: str, data: bytes, ack: Ack = Ack.ARRIVAL, timeout_s: float = 5.0) -> None:
        self.office.outbox.post(to.id, name, WireLetter(data, "", 0, False), ack, timeout_s, self.posted.append)

    def ring(self, to: "Program", name: str, priority: int) -> None:
        letter = WireLetter(b"", "", priority, True)
        self.office.outbox.post(to.id, name, letter, Ack.ARRIVAL, 5.0, self.posted.append)


class Harness(Protocol):
    async def add(self, owner: str, *, store: MailboxStore | None = None, is_synced: bool = True) -> Program: ...
    async def until(self, condition: Callable[[], object], within_s: float = 30.0) -> None: ...
    async def kill(self, program: Program) -> None: ...
    async def close(self) -> None: ...


class SimHarness:
    def __init__(self, seed: int = 7) -> None:
        self.simulation = Simulation(seed, SimulationSettings(peer=Tuning(), roster=True))
        self._programs: dict[Program, SimProgram] = {}

    async def add(self, owner: str, *, store: MailboxStore | None = None, is_synced: bool = True) -> Program:
        made = SimProgram(self.simulation, owner, store=store, settings=QUICK_MAILBOXES)
        program = Program(made.office, made.changes, made.events)
        self._programs[program] = made
        if is_synced:
            await self.until(lambda: program.is_synced)
            others = [each for each in self._programs if self._programs[each].node.is_alive]
            await self.until(lambda: all(len(each.office.runtime.peers()) == len(others) - 1 for each in others))
        return program

    async def until(self, condition: Callable[[], object], within_s: float = 30.0) -> None:
        assert self.simulation.run_until(lambda: bool(condition()), within_s), f"not within {within_s:g} s"

    async def kill(self, program: Program) -> None:
        self._programs.pop(program).kill()

    async def close(self) -> None:
        pass


class SocketHarness:
    def __init__(self) -> None:
        self._name = unique_name()
        self._programs: dict[Program, Mailboxes] = {}

    async def add(self, owner: str, *, store: MailboxStore | None = None, is_synced: bool = True) -> Program:
        channel = await broadloom.connect(self._name, tls=False, settings=QUICK, name=owner)
        boxes = Mailboxes(channel, store=store, settings=QUICK_MAILBOXES)
        changes: list[Change] = []
        events: list[MailboxEvent] = []
        boxes._runtime.on_change = changes.append
        boxes.on_event(events.append)
        program = Program(boxes._office, changes, events)
        self._programs[program] = boxes
        if is_synced:
            await self.until(lambda: program.is_synced)
            count = len(self._programs)
            await self.until(lambda: all(len(each.office.runtime.peers()) == count - 1 for each in self._programs))
        return program

    async def until(self, condition: Callable[[], object], within_s: float = 30.0) -> None:
        await eventually(condition, timeout_s=within_s)

    async def kill(self, program: Program) -> None:
        boxes = self._programs.pop(program)
        boxes.channel.abort()

    async def close(self) -> None:
        for boxes in self._programs.values():
            await boxes.aclose()
            boxes.channel.abort()


OpenHarness = Callable[[], Harness]
__all__ = ["QUICK_MAILBOXES", "Harness", "OpenHarness", "Program", "SimHarness", "SocketHarness", "Synced"]
