"""The server's own part in the switch of a channel: the directory, and the messages that it observes.

One session and its files are observed for all open pages together, and only while a page is open: senders broadcast a
copy of each message that somebody observes.
"""

import asyncio
import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING

from broadloom.switch import Disposition, MessageId, MessageState, Observer, Pattern, Scope, Switch, SwitchMessage
from broadloom.switch.session_name import own_session
from broadloom.web.own_peer import OwnPeer, PageClient
from broadloom.web.seen_request import SeenRequest, first_seen

if TYPE_CHECKING:
    from broadloom.switch import ProgramQueue, Registration
    from broadloom.wire import PeerId

PROGRAM = "broadloom-web"
"""The program type of this server in the directory."""
REQUESTS_MAX = 200
"""Messages kept; the oldest are dropped."""
QUEUES_TIMEOUT_S = 2.0
"""For the answers of all members that hold queues."""
QUEUES_AGE_S = 1.5
"""All open pages share one answer until then."""
PATTERNS_SHOWN_MAX = 50
"""Lines of one program."""
NAMES_SHOWN_MAX = 10
"""Operations or files in one line."""
REQUEST_TIMEOUT_S = 30.0
"""Of a request sent from a page."""
ID_DIGITS = 8
OBSERVED_STATES = (None, MessageState.STARTED, MessageState.ACCEPTED)
"""Most observers do not get the states of a running request; they have to be named."""


class SwitchClient(PageClient):
    def __init__(self, own_peer: OwnPeer) -> None:
        super().__init__()
        self.own_peer = own_peer
        self.switch: Switch | None = None
        self.files: dict[str, None] = {}
        """Files that are observed, besides the session."""
        self.requests: OrderedDict[MessageId, SeenRequest] = OrderedDict()
        self.version = 0
        """Changes when a message was seen or has a new state."""
        self._opening = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._queues: list[ProgramQueue] = []
        self._asked_at = -QUEUES_AGE_S
        self._observers: list[Observer] = []
        self._views: set[str] = set()
        """The open pages, by client."""
        self._registrations: dict[PeerId, Registration] = {}

    @property
    def is_available(self) -> bool:
        return self.own_peer.is_available

    @property
    def is_joined(self) -> bool:
        return self.switch is not None

    async def _join(self) -> None:
        async with self._opening:
            if self.switch is None:
                await self._open(None)

    async def _open(self, session: str | None) -> None:
        channel = await self.own_peer.channel()
        session = own_session(channel, session)  # raises before the old switch is closed
        if self.switch is not None:
            old, self.switch = self.switch, None
            self._observers.clear()
            await old.aclose()
            self.version += 1
        self.switch = Switch(channel, session=session, program=PROGRAM)
        for file in self.files:
            self.switch.add_file(file)
        if self._views:
            self._observe()

    # -- observing

    def add_view(self, client_id: str) -> None:
        """A page shows the messages."""
        if not self._views:
            self._observe()
        self._views.add(client_id)

    async def remove_view(self, client_id: str) -> None:
        self._views.discard(client_id)
        if not self._views:
            observers, self._observers = self._observers, []
            for observer in observers:
                await observer.aclose()

    def _observe(self) -> None:
        if self.switch is not None:
            self._observers = [self.switch.observe(callback=self._on_copy, state=state) for state in OBSERVED_STATES]

    async def observe_session(self, session: str) -> None:
        """Observe this session instead. Raises `NotPermittedError` if the ticket does not allow it."""
        async with self._opening:
            if self.switch is None or session != self.switch.session:
                await self._open(session)

    def observe_file(self, file: str) -> None:
        """Observe messages about this file, too. Raises `ValueError`."""
        if self.switch is not None and file not in self.files:
            self.switch.add_file(file)
            self.files[file] = None

    def ignore_file(self, file: str) -> None:
        if self.switch is not None and file in self.files:
            self.switch.remove_file(file)
            del self.files[file]

    def _on_copy(self, message: SwitchMessage) -> None:
        now = asyncio.get_running_loop().time()
        seen = self.requests.get(message.id)
        if seen is None:
            seen = self.requests[message.id] = first_seen(message, now)
            if len(self.requests) > REQUESTS_MAX:
                self.requests.popitem(last=False)
        if seen.add(message.state, now, message):
            self.version = seen.version = self.version + 1

    # -- sending

    async def send(self, operation: str, text: str, file: str | None) -> None:
        """Send a request and follow it to its end. Raises `ValueError`."""
        if self.switch is None:
            raise RuntimeError("the channel was not joined yet")
        loop = asyncio.get_running_loop()
        async with contextlib.aclosing(
            self.switch.follow(operation, text.encode(), file=file, timeout_s=REQUEST_TIMEOUT_S)
        ) as steps:
            async for step in steps:
                seen = self.requests.get(step.id)
                if seen is not None and seen.add(step.state, loop.time(), step):
                    self.version = seen.version = self.version + 1

    # -- what is registered

    def program_rows(self) -> list[tuple[str, ...]]:
        """What all other programs handle and observe, as the page lists it."""
        switch = self.switch
        if switch is None:
            return []
        own = switch.channel.peer_id
        self._registrations = {each.peer_id: each for each in switch.registrations()}
        rows = [
            (
                names_text(pattern.operations) or "any operation",
                "handles" if pattern.is_handler else "observes",
                scope_text(pattern),
                pattern.program or registration.program or "unnamed",
                registration.session,
                self.place(registration.peer_id),
                state_text(pattern),
            )
            for registration in self._registrations.values()
            if registration.peer_id != own
            for pattern in registration.patterns[:PATTERNS_SHOWN_MAX]
        ]
        return sorted(rows, key=lambda row: (row[1], row[0], row[4], row[3]))

    def known_names(self) -> tuple[list[str], list[str]]:
        """Operations that are handled, and sessions, for completion."""
        operations = {
            name
            for registration in self._registrations.values()
            for pattern in registration.patterns[:PATTERNS_SHOWN_MAX]
            if pattern.is_handler
            for name in pattern.operations[:NAMES_SHOWN_MAX]
        }
        return sorted(operations), sorted({each.session for each in self._registrations.values()})

    async def queue_rows(self) -> list[tuple[str, ...]]:
        """What waits for programs that do not run, as the page lists it."""
        switch = self.switch
        if switch is None:
            return []
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() >= self._asked_at + QUEUES_AGE_S:
                self._queues = await switch.queues(QUEUES_TIMEOUT_S)
                self._asked_at = loop.time()
        queues = self._queues
        counts = ["unknown" if each.count is None else f"{each.count:,}" for each in queues]
        return [
            (each.program, each.session, self.place(each.peer_id), count)
            for each, count in zip(queues, counts, strict=True)
        ]

    def place(self, peer_id: "PeerId") -> str:
        """Near or far: this server, this machine, or the host."""
        if self.switch is None:
            return "unknown"
        channel = self.switch.channel
        if peer_id == channel.peer_id:
            return "this page"
        own, other = channel.member(channel.peer_id), channel.member(peer_id)
        if other is None:
            return "unknown"
        is_near = own is not None and own.address.host == other.address.host
        return "near (this machine)" if is_near else f"far ({other.address.host})"

    def program_name(self, peer_id: "PeerId | None", program: str) -> str:
        """The program type and session of a member, or its id."""
        if peer_id is None:
            return program
        known = self._registrations.get(peer_id)
        name = program or (known.program if known is not None else "") or f"{peer_id:016x}"[:ID_DIGITS]
        return f"{name} of {known.session}" if known is not None else name

    async def close(self) -> None:
        await super().close()
        if self.switch is not None:
            await self.switch.aclose()


def names_text(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - NAMES_SHOWN_MAX:,} more" if len(names) > NAMES_SHOWN_MAX else ""
    return ", ".join(names[:NAMES_SHOWN_MAX]) + more


def scope_text(pattern: Pattern) -> str:
    """For which messages a pattern is."""
    if pattern.files is None:
        return pattern.scope.name.lower().replace("_", " ") if pattern.scope is not None else "any"
    files = names_text(pattern.files) or "none"
    return f"file {files} in session" if pattern.scope is Scope.FILE_IN_SESSION else f"file {files}"


def state_text(pattern: Pattern) -> str:
    """Whether the program runs, or what happens until it does."""
    rank = f", rank {pattern.rank}" if pattern.rank else ""
    return (_ABSENT[pattern.disposition] if pattern.program else "running") + rank


_ABSENT = {
    Disposition.DEFAULT: "does not run",
    Disposition.FAIL: "does not run",
    Disposition.START: "started on request",
    Disposition.QUEUE: "queued until it runs",
}
