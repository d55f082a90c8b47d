"""`AppSession`: one program's part in an application over a channel: a game, a meeting, an auction.

What is decided together is the application's: a pure state machine over entries. What every such program needs is here:
reading the entries of an ordered conversation, waiting for their effects, events, and the end. A session is used with
`async with`; when the block begins, it has joined. `leave` ends its part, and the channel stays joined.
"""

import asyncio
import json
import logging
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self, TypeVar, cast

import broadloom
from broadloom.apps.missed import EventQueue
from broadloom.apps.tape_log import APP_ENTRY, TapeLog
from broadloom.channel import Channel, ChannelEvent
from broadloom.channel.arguments import check_callback
from broadloom.channel.closable import AsyncClosable
from broadloom.channel.event_listeners import EventListeners
from broadloom.channel.item_reader import ItemReader
from broadloom.channel.layer_runtime import LayerRuntime
from broadloom.errors import BroadloomError, NotConnectedError, OrderTimeoutError
from broadloom.order import Entry, Order, Placed, Rewound, Skipped
from broadloom.protocol.events import LayerEvent
from broadloom.wire import PeerId

log = logging.getLogger("broadloom")

E = TypeVar("E")
S = TypeVar("S", bound="AppSession[Any]")

TIMEOUT_S = 10.0
"""For one entry."""
JOIN_TIMEOUT_S = 30.0
"""As for joining a channel."""
LEAVE_TIMEOUT_S = 2.0
READ_MAX = 256
"""Entries that are applied before other tasks get a turn: a late joiner has many of them at once."""
EVENTS_MAX = 10_000
"""Events that a program has not read; the oldest are dropped, and `Missed` says how many."""


class AppSession(LayerRuntime, AsyncClosable, ItemReader[E]):
    """Iterate over it for events, among them `Missed`. All iterators share one queue: each event is read once. A
    session that reads its order from the beginning also gives what happened before it joined. Not thread-safe: use it
    from the event loop of the channel."""

    _what = "application"
    """The word for it, in messages and on the tape."""
    _error: type[BroadloomError] = BroadloomError
    _events_max = EVENTS_MAX
    _drain_timeout_s = LEAVE_TIMEOUT_S

    def __init__(self, channel: Channel, mark: str) -> None:
        LayerRuntime.__init__(self, channel, mark, self._on_left_channel)
        ItemReader.__init__(self)
        self._conversation: Order | None = None
        self._applied_index = 0
        """The last entry of the order that was applied here."""
        self._events = EventQueue[E](self._events_max)
        self._listeners = EventListeners[E](f"{channel.name}: {self._what}")
        self._tape_log = TapeLog(self.observer, self._what)
        self._changed = asyncio.Event()
        self._end_reason: BroadloomError | None = None
        self._closing: asyncio.Task[None] | None = None
        """Begins with the end."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._channel.name!r})"

    @property
    def channel(self) -> Channel:
        return self._channel

    @property
    def is_ended(self) -> bool:
        """Whether this program's part is over."""
        return self._end_reason is not None

    # -- joining and leaving

    @abstractmethod
    async def _join(self) -> None:
        """Call `_begin`, and wait until this program takes part."""

    def _begin(self, order: Order | None) -> None:
        """Take messages and events of the channel, and the entries of this order."""
        self._conversation = order
        self._open()
        if order is not None:
            self._start(self._read, order)

    async def __aenter__(self) -> Self:
        """Raises `NotConnectedError` after `leave`: a session is joined once."""
        self._check_open()
        try:
            await self._join()
        except BaseException:
            await self.leave()
            raise
        return self

    async def leave(self) -> None:
        """End this program's part. The others continue, and the channel stays joined."""
        try:
            if self._end_reason is None:
                with suppress(BroadloomError, TimeoutError):
                    await self._announce_leave()
        finally:
            self._end(NotConnectedError(f"{self._channel.name}: the {self._what} was left"))
            if self._closing is not None:
                await asyncio.shield(self._closing)

    async def aclose(self) -> None:
        """The same as `leave`."""
        await self.leave()

    async def _announce_leave(self) -> None:
        """Submit what the others should know; at most `LEAVE_TIMEOUT_S`."""

    def _on_left_channel(self) -> None:
        self._end(NotConnectedError(f"{self._channel.name}: the channel was left"))

    def _end(self, reason: BroadloomError) -> None:
        if self._end_reason is None:
            self._end_reason = reason
            self._on_end()
            self._tape_log.end()
            self._wake()
            self._closing = self._loop.create_task(self._close_layers())

    async def _close_layers(self) -> None:
        """A session that has ended takes no part any more, also before `leave`: it does not order entries for the
        others, and is not in the roster of its application."""
        try:
            if self._conversation is not None:
                await self._conversation.aclose()
        finally:
            await self.close()

    def _on_end(self) -> None:
        """Nothing is applied any more."""

    def _check_open(self) -> None:
        """Raises the reason for which the session ended: `NotConnectedError` if it was left."""
        if self._end_reason is not None:
            raise self._end_reason

    # -- events

    def emit(self, event: E) -> None:
        self._events.append(event)
        self._listeners.emit(event)
        self._wake()

    @property
    def unread_count(self) -> int:
        return len(self._events)

    def _take(self) -> E | None:
        return cast("E | None", self._events.take())

    def _awaited(self) -> str:
        return f"event of the {self._what} {self._channel.name}"

    def on_event(self, callback: Callable[[E], None]) -> Callable[[], None]:
        """Call `callback` for each event too. Returns a function that removes it."""
        check_callback(callback)
        return self._listeners.add(callback)

    async def events(self) -> AsyncGenerator[E, None]:
        """Events from now on, for a second reader, with a queue of its own. Ends as the iteration over the session
        does: raises the reason if the session could not continue."""
        unread = EventQueue[E](self._events_max)
        remove = self._listeners.add(unread.append)
        try:
            while True:
                while (event := unread.take()) is not None:
                    yield cast("E", event)
                if isinstance(self._end_reason, self._end_error):
                    return
                self._check_open()
                await self._changed.wait()
        finally:
            remove()

    # -- the order

    @property
    def _order(self) -> Order:
        if self._conversation is None:
            raise NotConnectedError(f"{self._channel.name}: the {self._what} was not joined yet: use `async with`")
        return self._conversation

    async def _read(self, order: Order) -> None:
        count = 0
        try:
            async for item in order:
                match item:
                    case Entry():
                        self._on_entry(item)
                        self._applied_index = item.index
                    case Rewound():
                        self._on_rewound(item)
                        self._applied_index = item.to_index
                    case Skipped():
                        self._on_skipped(item)
                        self._applied_index = item.last_index
                self._wake()
                count += 1
                if count % READ_MAX == 0:
                    await asyncio.sleep(0)
        except BroadloomError as problem:
            self._end(problem)
        self._on_left_channel()

    def _on_entry(self, entry: Entry) -> None:
        """The next entry of the order."""

    def _on_rewound(self, rewound: Rewound) -> None:
        """Mode `available`: entries behind a place were revoked."""

    def _on_skipped(self, skipped: Skipped) -> None:
        """No member has these entries any more."""
        text = f"entries {skipped.first_index} to {skipped.last_index} of this {self._what} are gone: start another one"
        raise self._error(f"{self._channel.name}: {text}")

    async def _submit_entry(
        self,
        data: bytes,
        timeout_s: float = TIMEOUT_S,
        has_effect: Callable[[], bool] | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> Placed:
        """Order an entry, and wait until it has its effect here: by default, until it was applied. After
        `OrderTimeoutError` the outcome is unknown. If `on_sent` was not called, the entry will not be ordered."""
        self._check_open()
        deadline = self._loop.time() + timeout_s
        try:
            placed = await self._order.submit(data, timeout_s=timeout_s, on_sent=on_sent)
        except NotConnectedError:
            self._check_open()  # the reason why the session has closed its order
            raise
        try:
            async with asyncio.timeout_at(deadline):
                await self._wait_until(has_effect or (lambda: self._applied_index >= placed.index))
        except TimeoutError:
            text = f"no effect within {timeout_s:g} s. It may still happen: look before you repeat it"
            raise OrderTimeoutError(f"{self._channel.name}: {text}") from None
        return placed

    def _wake(self) -> None:
        self._wakeup.set()
        self._changed.set()
        self._changed.clear()

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._check_open()
            await self._changed.wait()

    def _record(
        self,
        status: str,
        author: int | None = None,
        number: int | None = None,
        *,
        owner: str | None = None,
        reason: str | None = None,
        **figures: Any,
    ) -> None:
        """A row on the tape, if the channel has one: author, action and figures, never text that people wrote."""
        if self.observer is not None:
            by = PeerId(author) if author is not None else None
            figures = {name: value for name, value in figures.items() if value is not None}
            text = json.dumps(figures, ensure_ascii=False, separators=(",", ":"))
            self.observer.on_event(
                LayerEvent(
                    APP_ENTRY, by, number, name=self._what, reason=reason, status=status, actions=text, owner=owner
                )
            )

    # -- tasks

    def _start(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """In the background, until the session is left."""
        self._start_task(self._guarded(work, *arguments))

    def _start_best_effort(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """The same for work that may fail with a `BroadloomError` without harm."""
        self._start(self._attempt, work, *arguments)

    async def _attempt(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        try:
            await work(*arguments)
        except BroadloomError as problem:
            log.debug("%s: %s", self._channel.name, problem)

    async def _guarded(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """An unexpected failure ends the session with its reason, so that it does not stall."""
        try:
            await work(*arguments)
        except BroadloomError as problem:
            self._end(problem)
        except Exception as problem:
            log.exception("%s: the %s cannot continue in this program", self._channel.name, self._what)
            text = f"the {self._what} cannot continue in this program: {problem!r}"
            self._end(self._error(f"{self._channel.name}: {text}"))

    # -- called by the channel

    def _on_message(self, author: PeerId, data: bytes) -> None:
        """A broadcast of another program in the application."""

    def _on_event(self, event: ChannelEvent) -> None:
        """An event of the channel."""


def own_name(channel: Channel, chosen: str = "") -> str:
    """The name on the ticket, else the chosen one, else the one given to `connect`."""
    identity = channel.identity(channel.peer_id)
    return (identity.name if identity is not None else "") or chosen or channel._node.name


@asynccontextmanager
async def joined(channel: str, make: Callable[[Channel], S], **options: Any) -> AsyncIterator[S]:
    """Join a channel with the options of `connect`, and there the application that `make` gives."""
    async with broadloom.connect(channel, **options) as connected, make(connected) as session:
        yield session
