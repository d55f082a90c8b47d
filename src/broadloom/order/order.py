"""`Order`: the public object, one program's part in one ordered conversation.

async with broadloom.connect("games/table-7") as channel:
    async with broadloom.ordered(channel, "moves", mode="available") as order:
        await order.submit(b"e4")
        async for entry in order:
            ...
"""

import asyncio
import hashlib
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING

from broadloom.channel.arguments import check_callback, check_positive_timeout
from broadloom.channel.closable import AsyncClosable
from broadloom.channel.event_listeners import EventListeners
from broadloom.channel.item_reader import ItemReader
from broadloom.channel.outgoing import Way
from broadloom.errors import (
    BroadloomError,
    InboxOverflowError,
    MessageTooLargeError,
    NoMajorityError,
    NotConnectedError,
    NotPermittedError,
    OrderTimeoutError,
)
from broadloom.order.catch_up import LIMIT
from broadloom.order.channel_runtime import ChannelOrderRuntime, OrderLayer, name_on_channel
from broadloom.order.codec import LAYER, decode, encode
from broadloom.order.messages import Fetch, Page
from broadloom.order.model import Entry, Epoch, Mode, OrderEvent, Placed, Rewound, Skipped
from broadloom.order.replica import Replica
from broadloom.order.settings import ENTRY_BYTES_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX, VOTERS, OrderSettings
from broadloom.order.sqlite_store import SqliteOrderStore
from broadloom.protocol.events import payload_bytes
from broadloom.wire import PeerId
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.order.store import OrderStore

HISTORY_TIMEOUT_S = 5.0

OrderItem = Entry | Rewound | Skipped


def ordered(
    channel: "Channel",
    name: str,
    *,
    mode: Mode | str,
    voters: Sequence[str] = (),
    store: str | os.PathLike[str] | None = None,
    from_index: int | None = None,
    settings: OrderSettings | None = None,
) -> "Order":
    """Take part in the ordered conversation `name` of a channel: its entries come in the same order at every member.

    - `mode`: "safe" (only the side with a majority of the voters continues, and nothing is ever revised) or "available"
      (every side continues; when they meet, the smaller one rewinds). docs/order.md says what each of them means.
    - `voters`: mode "safe" only. The names of 3, 5, 7 or 9 members, the same in every program: names on tickets, or the
      names given to `connect` on a channel without tickets.
    - `store`: mode "safe", for voters. The SQLite file that keeps the votes and the log of this voter.
    - `from_index`: where to begin: 1 for all entries that other members still have. By default only entries that are
      ordered from now on.
    """
    return Order(channel, name, mode=mode, voters=voters, store=store, from_index=from_index, settings=settings)


class Order(ItemReader[OrderItem], AsyncClosable):
    """One program's part in one ordered conversation, returned by `ordered`. Iterate over it to receive entries, its
    own included; in mode "available" also `Rewound`, at its place between them.

    Not thread-safe: use it from the event loop of the channel.
    """

    def __init__(
        self,
        channel: "Channel",
        name: str,
        *,
        mode: Mode | str,
        voters: Sequence[str] = (),
        store: "OrderStore | str | os.PathLike[str] | None" = None,
        from_index: int | None = None,
        settings: OrderSettings | None = None,
    ) -> None:
        super().__init__()
        if settings is not None and not isinstance(settings, OrderSettings):
            raise TypeError(f"settings are OrderSettings, not {type(settings).__name__}")
        self.name = name
        self.mode = _checked_mode(mode)
        names = _checked_voters(self.mode, voters)
        if self.mode is Mode.AVAILABLE and store is not None:
            raise ValueError('a store is for the voters of mode="safe"; in mode="available" nothing is stored')
        if not isinstance(name, str):
            raise TypeError(f"the name of a conversation is text, not {type(name).__name__}")
        if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
            raise ValueError(f"the name of a conversation has 1 to {NAME_BYTES_MAX} bytes, not {name!r}")
        if from_index is not None:
            _check_index(from_index)
        self._settings = settings or OrderSettings()
        self._items: deque[OrderItem] = deque()
        self._backlog_count = 0
        """Unread items up to the last one of a fetched log. They do not count against `unread_max`: the program had no
        turn to read them."""
        self._backlog_end = 0
        """The index of that last one. While some are unread, a further fetch counts, so the queue stays limited."""
        self._has_room = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[Placed]] = {}
        self._listeners: EventListeners[OrderEvent] = EventListeners(f"{channel.name}: {name}")
        self._end_reason: BroadloomError | None = None
        self._store: OrderStore | None = None
        self._id = conversation_id(self.mode, name, names)
        own_name = name_on_channel(channel, channel.peer_id)
        if own_name in names and store is None:
            raise ValueError(f"{own_name!r} is a voter: give it a store, the file that keeps what it has voted for")
        if own_name in names and store is not None:
            self._store = SqliteOrderStore(store, self._id) if isinstance(store, str | os.PathLike) else store
        self._layer = OrderLayer.of(channel)
        self._runtime = ChannelOrderRuntime(self._layer, self)
        try:
            self._replica = self._runtime.replica = Replica(
                self._runtime,
                self._id,
                voters=names,
                settings=self._settings,
                store=self._store,
                from_index=from_index,
            )
            self._layer.add(self._id, self._runtime)
        except BaseException:
            self._layer.close_if_unused()
            if self._store is not None:
                self._store.close()
            raise
        self._replica.start()

    def __repr__(self) -> str:
        return f"Order({self.name!r}, mode={self.mode.value!r})"

    # -- state

    @property
    def epoch(self) -> Epoch | None:
        """The present epoch, with its sequencer; None before the first one."""
        return self._replica.log.epoch if self._replica.log.lineage else None

    @property
    def is_sequencer(self) -> bool:
        """Whether this program assigns the order at the moment."""
        return self._replica.is_sequencing

    @property
    def last_index(self) -> int:
        """The last entry that was delivered into the queue of this program."""
        return self._replica.delivery.position

    @property
    def participants(self) -> tuple[PeerId, ...]:
        """The members that take part, as far as this program knows, itself included."""
        return tuple(PeerId(each) for each in self._replica.participants.all)

    @property
    def unread_count(self) -> int:
        return len(self._items)

    # -- submitting

    async def submit(
        self,
        data: bytes,
        *,
        key: bytes | str | None = None,
        timeout_s: float = 10.0,
        on_sent: Callable[[], None] | None = None,
    ) -> Placed:
        """Order a message, and return its place when it was delivered to this program too.

        With a `key` (at most 64 bytes, chosen at random by the application) a message is ordered once, from any author
        and however often it is submitted. Raises `OrderTimeoutError`, or `NoMajorityError` if too few voters are
        connected (mode "safe"): then the outcome is unknown, the message may still be ordered, and submitting it again
        with the same key is safe. `on_sent` is called when the message is on its way; if this was canceled or failed
        before, it will not be ordered.
        """
        data = payload_bytes(data, "text.encode() or json.dumps(value).encode()")
        encoded_key = _checked_key(key)
        check_positive_timeout(timeout_s)
        if len(data) > ENTRY_BYTES_MAX:
            raise MessageTooLargeError(
                f"message of {len(data):,} bytes: at most {ENTRY_BYTES_MAX:,} can be ordered; broadcast the data, and "
                "order its hash"
            )
        data = await self._layer.channel._filter_content(data, Way.ENTRY, self.name, LAYER)
        number: int | None = None
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_for_room()
                number = self._replica.submit(data, encoded_key)
                self._waiting[number] = asyncio.get_running_loop().create_future()
                if on_sent is not None:
                    on_sent()
                return await self._waiting[number]
        except TimeoutError:
            raise self._timeout_error(timeout_s, was_sent=number is not None, has_key=key is not None) from None
        finally:
            if number is not None:
                self._waiting.pop(number, None)

    async def _wait_for_room(self) -> None:
        self._check_open()
        if not self._runtime.may_send(self._runtime.peer_id):
            raise NotPermittedError(f"{self.name}: the ticket has the role consumer, which may only receive")
        while not self._replica.submissions.has_room or not self._knows_own_number:
            self._has_room.clear()
            await self._has_room.wait()
            self._check_open()

    @property
    def _knows_own_number(self) -> bool:
        """If this program had the conversation open before, the log says how many of its submissions were ordered."""
        return not self._runtime.is_reopened or self._store is not None or self._replica.delivery.has_started

    def _timeout_error(self, timeout_s: float, *, was_sent: bool, has_key: bool) -> OrderTimeoutError:
        remedy = "submit it again with the same key" if has_key else "look before you repeat it"
        what = f"it is unknown whether it will be; {remedy}" if was_sent else "it was not sent"
        text = f"{self.name}: not ordered within {timeout_s:g} s, and {what}"
        if not self._replica.policy.has_quorum(self._replica.participants.all):
            return NoMajorityError(f"{text}; {self._replica.liveness.stall_reason()}")
        return OrderTimeoutError(text)

    def _on_placed(self, number: int, placed: Placed) -> None:
        self._has_room.set()
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(placed)

    # -- receiving

    def _take(self) -> OrderItem | None:
        self._backlog_count = max(0, self._backlog_count - 1)
        return self._items.popleft() if self._items else None

    def _awaited(self) -> str:
        return f"entry of {self.name}"

    def _deliver(self, entry: Entry) -> None:
        if not self._backlog_count:
            self._backlog_end = self._replica.delivery.fetched_end
        if entry.index <= self._backlog_end:
            self._backlog_count = len(self._items) + 1
        self._put(entry)

    def _put(self, item: OrderItem) -> None:
        if self._end_reason is not None:
            return
        if len(self._items) - self._backlog_count >= self._settings.unread_max:
            self._end(InboxOverflowError(f"{self.name}: closed, because {len(self._items):,} items were not read"))
            return
        self._items.append(item)
        self._wakeup.set()

    async def history(self, from_index: int = 1, *, member: PeerId | None = None) -> list[Entry]:
        """Entries from this index on that another member has: by default the sequencer. The list ends with the last
        one that was ordered when it answered, and begins with the first one that it still keeps."""
        self._check_open()
        _check_index(from_index)
        epoch = self.epoch
        source = member if member is not None else epoch.sequencer if epoch is not None else None
        if source is None:
            return []
        found: list[Entry] = []
        while True:
            page = await self._page(source, from_index)
            epochs = page.lineage
            limit = page.committed if self.mode is Mode.SAFE else page.end
            for index, entry in enumerate(page.entries, page.first_index):
                if from_index <= index <= limit and not entry.original:
                    of_entry = next(
                        (each.epoch for each in reversed(epochs) if each.first_index <= index), epochs[0].epoch
                    )
                    found.append(Entry(index, of_entry, PeerId(entry.author), entry.data, self.mode is Mode.SAFE))
            next_index = page.first_index + len(page.entries)
            is_endless = len(found) > LIMIT * self._settings.log_entries_max
            if not page.entries or next_index > limit or next_index <= from_index or is_endless:
                return found
            from_index = next_index

    async def _page(self, source: PeerId, from_index: int) -> Page:
        fetch = Fetch(self._id, (), 0, from_index)
        if source == self._runtime.peer_id:
            data = self._own_page(fetch)
        else:
            data = await self._layer.ask(source, encode(fetch), HISTORY_TIMEOUT_S)
        try:
            page = decode(data)
        except WireError as problem:
            raise BroadloomError(f"{self.name}: {source:016x} sent a malformed page: {problem}") from None
        if not isinstance(page, Page) or not page.lineage:
            raise BroadloomError(f"{self.name}: {source:016x} did not send a page of the log")
        return page

    def _own_page(self, fetch: Fetch) -> bytes:
        replies: list[bytes | None] = []
        self._replica.on_request(self._runtime.peer_id, fetch, replies.append)
        return replies[0] or b""

    # -- events

    def on_event(self, callback: Callable[[OrderEvent], None]) -> Callable[[], None]:
        """Call `callback` for every event. Returns a function that removes it."""
        check_callback(callback)
        return self._listeners.add(callback)

    def events(self) -> AsyncGenerator[OrderEvent, None]:
        """Events as they happen, until the channel is left or this is closed."""
        return self._listeners.events()

    def _emit(self, event: OrderEvent) -> None:
        if isinstance(event, Rewound):
            self._backlog_end = min(self._backlog_end, event.to_index)
        if isinstance(event, Rewound | Skipped):
            self._put(event)
        self._has_room.set()
        self._listeners.emit(event)

    # -- closing

    def _check_open(self) -> None:
        if self._end_reason is not None:
            raise self._end_reason

    def _on_left(self) -> None:
        self._end(NotConnectedError(f"{self.name}: the channel was left"))

    def _end(self, reason: BroadloomError) -> None:
        if self._end_reason is not None:
            return
        self._end_reason = reason
        self._replica.close()
        self._runtime.is_closed = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(reason)
        self._wakeup.set()
        self._has_room.set()
        self._listeners.end()
        if self._store is not None:
            self._store.close()

    async def aclose(self) -> None:
        """End this program's part. The others continue, and so does the channel."""
        self._end(NotConnectedError(f"{self.name}: this conversation was closed"))
        await self._layer.remove(self._id, self._runtime)


def conversation_id(mode: Mode, name: str, voters: Sequence[str]) -> int:
    """Programs that differ in mode or voters are not in the same conversation."""
    text = "\0".join(("broadloom order", mode, name, *voters))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") or 1


def _checked_mode(mode: Mode | str) -> Mode:
    if mode not in list(Mode):
        raise ValueError(f"mode={mode!r}: must be one of {', '.join(Mode)}")
    return Mode(mode)


def _checked_voters(mode: Mode, voters: Sequence[str]) -> tuple[str, ...]:
    if isinstance(voters, str):
        raise TypeError(f"voters is a list of names: [{voters!r}]")
    if not all(isinstance(each, str) for each in voters):
        raise TypeError("voters is a list of names, which are text")
    names = tuple(sorted(dict.fromkeys(voters)))
    if mode is Mode.AVAILABLE and names:
        raise ValueError('voters are for mode="safe"; in mode="available" every participant counts')
    if mode is Mode.SAFE and len(names) not in VOTERS:
        raise ValueError(
            f"mode='safe' needs {', '.join(map(str, VOTERS))} voters with different names, not {len(names)}"
        )
    if not all(names):
        raise ValueError("a voter has a name: that on its ticket, or the one that it gives to connect")
    return names


def _check_index(index: object) -> None:
    if isinstance(index, bool) or not isinstance(index, int):
        raise TypeError(f"from_index must be a whole number, not {type(index).__name__}")
    if index < 1:
        raise ValueError(f"from_index={index}: the first entry has the index 1")


def _checked_key(key: bytes | str | None) -> bytes:
    if key is None:
        return b""
    if not isinstance(key, str | bytes):
        raise TypeError(f"a key is text or bytes, not {type(key).__name__}")
    encoded = key.encode() if isinstance(key, str) else key
    if not 0 < len(encoded) <= KEY_BYTES_MAX:
        raise ValueError(f"a key has 1 to {KEY_BYTES_MAX} bytes, not {len(encoded)}; without one, leave it out")
    return encoded
