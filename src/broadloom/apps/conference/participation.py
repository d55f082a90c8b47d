"""`Participation`: the core of a meeting over a real channel: its order, its live messages and the roster drive it."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from broadloom.apps.conference import live
from broadloom.apps.conference.actions import Action, Arrive, Leave, Point, Viewpoint
from broadloom.apps.conference.core import Done, MeetingCore
from broadloom.apps.conference.errors import ConferenceError, MeetingFullError
from broadloom.apps.conference.state import MeetingState
from broadloom.channel.event_listeners import EventListeners
from broadloom.errors import BroadloomError, NotConnectedError, NotPermittedError, OrderTimeoutError
from broadloom.order import Entry, Order, OrderEvent, OrderItem, OrderSettings, Rewound, Skipped
from broadloom.protocol.roster.member import MemberJoined, MemberLeft, MemberLost
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent
    from broadloom.protocol.events import Batch

log = logging.getLogger("broadloom")

CONVERSATION = "conference"
ENTRIES_MAX = 60_000
"""Entries of one meeting, all of which every member keeps: a late joiner gets everything, or nothing is added."""
SETTINGS = OrderSettings(log_entries_max=65_536, log_bytes_max=1 << 30, unread_max=1 << 17)
JOIN_TIMEOUT_S = 30.0
TIMEOUT_S = 10.0
LEAVE_TIMEOUT_S = 2.0
GUEST = "guest"


class ViewMoved(NamedTuple):
    """The leader looks from somewhere else."""

    viewpoint: Viewpoint


class Pointed(NamedTuple):
    """A participant points at something."""

    peer_id: PeerId
    at: Point


class ParticipantsChanged(NamedTuple):
    """A member has joined or is gone."""


MeetingEvent = Done | Rewound | ViewMoved | Pointed | ParticipantsChanged


class Participation:
    def __init__(self, channel: "Channel", name: str = "", *, listens: bool = False) -> None:
        self.channel = channel
        own = channel.identity(channel.peer_id)
        self.name = (own.name if own is not None else "") or name or channel._node.name or GUEST
        self._listens = listens
        self._core = MeetingCore(channel.peer_id)
        self._listeners: EventListeners[MeetingEvent] = EventListeners(f"{channel.name}: conference")
        self._changed = asyncio.Event()
        self._applied = self._own_applied = 0
        """The last entry, and the number of the last action of our own."""
        self._end_reason: BroadloomError | None = None
        self._views = live.Views()
        self._check_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._cleanups: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.channel.name!r}, name={self.name!r})"

    # -- joining and leaving

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(JOIN_TIMEOUT_S):
                await self.channel.wait_for_roster()
                self._layer = self.channel.layer(live.LAYER, self._on_batch)
                self._cleanups.append(self._layer.close)
                self._order = Order(self.channel, CONVERSATION, mode="available", from_index=1, settings=SETTINGS)
                self._cleanups.append(self._order.on_event(self._on_order_event))
                self._cleanups.append(self.channel.on_event(self._on_channel_event))
                self._start(self._read)
                await self._arrive()
        except TimeoutError:
            await self._close()
            raise ConferenceError(
                f"{self.channel.name}: the meeting did not answer within {JOIN_TIMEOUT_S:g} s: try again"
            ) from None
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.leave()

    async def _arrive(self) -> None:
        """Our own entry comes after all that happened before."""
        if not self._listens:
            try:
                await self._do(Arrive(self.name), timeout_s=JOIN_TIMEOUT_S)
                return
            except NotPermittedError:
                pass  # the ticket is for consumers, who listen
        await self._wait_until(lambda: self._order.epoch is not None)
        if before := await self._order.history():
            await self._wait_until(lambda: self._applied >= before[-1].index)

    async def leave(self) -> None:
        """Give the floor back and end this program's part. The channel stays joined."""
        if self.me in self.state.participants:
            with suppress(BroadloomError):
                await self._do(Leave(), timeout_s=LEAVE_TIMEOUT_S)
        await self._close()

    async def _close(self) -> None:
        self._end(NotConnectedError(f"{self.channel.name}: this meeting was left"))
        if self._check_timer is not None:
            self._check_timer.cancel()
        for cleanup in reversed(self._cleanups):
            cleanup()
        self._cleanups.clear()
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if hasattr(self, "_order"):
            await self._order.aclose()

    def _end(self, reason: BroadloomError) -> None:
        self._end_reason = self._end_reason or reason
        self._changed.set()
        self._listeners.end()

    @property
    def me(self) -> PeerId:
        return self.channel.peer_id

    @property
    def state(self) -> MeetingState:
        """Everything that was agreed on; read only."""
        return self._core.state

    @property
    def leader(self) -> PeerId | None:
        """The participant that has the floor."""
        holder = self.state.floor.holder
        return PeerId(holder) if holder is not None else None

    # -- events

    def on_event(self, callback: Callable[[MeetingEvent], None]) -> Callable[[], None]:
        """Call `callback` for each event. Returns a function that removes it."""
        return self._listeners.add(callback)

    def events(self) -> AsyncIterator[MeetingEvent]:
        """Events as they happen, until the meeting is left."""
        return self._listeners.events()

    # -- the order

    def _check_open(self) -> None:
        if self._end_reason is not None:
            raise self._end_reason

    async def _do(self, action: Action, timeout_s: float = TIMEOUT_S) -> str:
        """Submit an action and wait until it has happened here. Returns the id of what it creates."""
        self._check_open()
        if self._order.last_index >= ENTRIES_MAX:
            raise MeetingFullError(f"this meeting has {ENTRIES_MAX:,} entries, which is the limit: start another one")
        number, data = self._core.prepare(action, int(time.time() * 1000))
        try:
            async with asyncio.timeout(timeout_s):
                await self._order.submit(data, timeout_s=timeout_s)
                await self._wait_until(lambda: self._own_applied >= number)
        except (OrderTimeoutError, TimeoutError):
            text = f"not ordered within {timeout_s:g} s. It may still happen: look before you repeat it"
            raise ConferenceError(f"{self.channel.name}: {text}") from None
        except BroadloomError:
            self._core.withdraw(number)
            raise
        return f"{self.me:x}-{number}"

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._check_open()
            self._changed.clear()
            await self._changed.wait()

    async def _read(self) -> None:
        try:
            async for item in self._order:
                self._on_item(item)
            self._end(NotConnectedError(f"{self.channel.name}: the channel was left"))
        except BroadloomError as problem:
            self._end(problem)

    def _on_item(self, item: OrderItem) -> None:
        match item:
            case Entry():
                done = self._core.on_entry(item, self._now())
                self._applied = item.index
                if done is not None and done.author == self.me:
                    self._own_applied = max(self._own_applied, done.sent.number)
                self._on_change(done)
            case Rewound():
                self._core.on_rewound(item, self._now())
                self._on_change(item)
            case Skipped(first, last):
                text = f"entries {first} to {last} of this meeting are gone: start another one"
                raise ConferenceError(f"{self.channel.name}: {text}")

    def _on_change(self, event: MeetingEvent | None) -> None:
        if event is not None:
            self._listeners.emit(event)
        self._check_duties()

    def _on_order_event(self, _event: OrderEvent) -> None:
        self._check_duties()

    def _on_channel_event(self, event: "ChannelEvent") -> None:
        if isinstance(event, MemberJoined | MemberLeft | MemberLost):
            if isinstance(event, MemberLost):
                self._core.on_member_lost()
            if not isinstance(event, MemberJoined):
                self._views.forget(event.member.peer_id)
            self._on_change(ParticipantsChanged())

    def _check_duties(self) -> None:
        self._changed.set()
        if self._check_timer is not None:
            self._check_timer.cancel()
            self._check_timer = None
        if self._end_reason is not None:
            return
        duties = self._core.duties(
            self._now(),
            self._order.epoch,
            is_sequencer=self._order.is_sequencer,
            is_present=lambda peer_id: self.channel.member(PeerId(peer_id)) is not None,
        )
        for action in duties.actions:
            self._start(self._do, action)
        if duties.again_in_s is not None:
            self._check_timer = asyncio.get_running_loop().call_later(duties.again_in_s, self._check_duties)

    def _start(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(work, *arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """A meeting in which something unexpected fails ends with the reason, instead of standing still."""
        try:
            await work(*arguments)
        except BroadloomError as problem:
            log.debug("%s: %s", self.channel.name, problem)
        except Exception as problem:
            log.exception("%s: the meeting cannot continue in this program", self.channel.name)
            self._end(ConferenceError(f"{self.channel.name}: the meeting cannot continue in this program: {problem!r}"))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- live messages

    def _on_batch(self, batch: "Batch") -> None:
        for data in batch.data:
            match self._views.receive(batch.author, data, self._now()):
                case live.LiveView(viewpoint=viewpoint) if batch.author == self.leader:
                    self._listeners.emit(ViewMoved(viewpoint))
                case live.Pointer(at):
                    self._listeners.emit(Pointed(batch.author, at))
