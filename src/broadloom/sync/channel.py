"""`Channel` for synchronous programs: the names, results and exceptions of the asynchronous one, without `await`."""

import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from broadloom.channel import channel as asynchronous
from broadloom.channel.channel import ChannelEvent
from broadloom.channel.connect import PendingConnection
from broadloom.channel.options import ConnectOptions, accepts_connect_options
from broadloom.channel.status import Status
from broadloom.protocol.events import Batch, Message
from broadloom.protocol.identity import Identity
from broadloom.sync.bridge import call, iterate, loop_thread, run
from broadloom.wire import PeerId
from broadloom.wire.broadcast_frame import Priority


class Channel:
    """A joined channel, returned by `broadloom.sync.connect`. All methods are thread-safe.

    Callbacks run in Broadloom's background thread and must not block. They may use the methods that do not wait.
    """

    def __init__(self, channel: asynchronous.Channel) -> None:
        self._channel = channel
        loop_thread.add_channel(channel)

    # -- identity and status

    @property
    def name(self) -> str:
        return self._channel.name

    @property
    def peer_id(self) -> PeerId:
        """This program's id on the channel, new at each connect."""
        return self._channel.peer_id

    @property
    def is_connected(self) -> bool:
        return self._channel.is_connected

    @property
    def missed_count(self) -> int:
        """Messages that this program will not receive; each was reported in a `Missed` event."""
        return self._channel.missed_count

    def identity(self, peer_id: PeerId) -> Identity | None:
        """The verified name and role of an author; None if the channel is not signed or the author is unknown."""
        return self._channel.identity(peer_id)

    def display_name(self, peer_id: PeerId) -> str:
        """The name on the author's ticket, or its id in hex."""
        return self._channel.display_name(peer_id)

    def status(self) -> Status:
        """The state of this peer: neighbors, free slots, estimated diameter, counters."""
        return call(self._channel.status)

    def wait_for_peers(self, timeout_s: float | None = None) -> None:
        """Wait until another peer is connected. Raises `TimeoutError`, or `NotConnectedError` if the channel was
        left."""
        run(self._channel.wait_for_peers(timeout_s))

    # -- sending

    def broadcast(self, data: bytes, *, priority: int = Priority.NORMAL, ttl_s: float | None = None) -> int:
        """Send a message to all members; returns its sequence number. Waits while links or receivers are congested."""
        return run(self._channel.broadcast(data, priority=priority, ttl_s=ttl_s))

    def broadcast_nowait(self, data: bytes, *, priority: int = Priority.NORMAL, ttl_s: float | None = None) -> int:
        """As `broadcast`, without flow control. May be called in callbacks."""
        return call(self._channel.broadcast_nowait, data, priority=priority, ttl_s=ttl_s)

    def broadcast_text(self, text: str) -> int:
        """Send text as UTF-8; receivers read `message.text`."""
        return run(self._channel.broadcast_text(text))

    def broadcast_json(self, value: Any) -> int:
        """Send a value as JSON; receivers read `message.json()`."""
        return run(self._channel.broadcast_json(value))

    def broadcast_file(
        self,
        path: str | os.PathLike[str],
        *,
        priority: int = Priority.NORMAL,
        ttl_s: float | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Send a file with its name and a hash, which receivers check; they find it in `message.file`."""
        return run(self._channel.broadcast_file(path, priority=priority, ttl_s=ttl_s, on_progress=on_progress))

    # -- receiving

    @property
    def unread_count(self) -> int:
        """Number of messages in the inbox."""
        return self._channel.unread_count

    @property
    def has_overflowed(self) -> bool:
        """Whether the channel was left because this program did not read in time (`overflow="leave"`)."""
        return self._channel.has_overflowed

    def receive_nowait(self) -> Message | None:
        """The next message, or None if the inbox is empty: for a main loop that polls."""
        # Checked without a lock: a message that arrives right now is returned by the next call.
        if not self._channel.unread_count and not self._channel.has_overflowed:
            return None
        return call(self._channel.receive_nowait)

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises `TimeoutError`, or `NotConnectedError` if the channel was left."""
        return run(self._channel.receive(timeout_s))

    def __iter__(self) -> Iterator[Message]:
        return iterate(self._channel.__aiter__())

    def batches(self) -> Iterator[Batch]:
        """Messages in batches, as they arrived, until the channel is left: the fastest way to read a busy channel."""
        return iterate(self._channel.batches())

    def on_message(self, callback: Callable[[Message], None] | None) -> Callable[[], None]:
        """Call `callback` for each message instead of storing it in the inbox, beginning with the unread ones.

        There is one callback: a new one replaces it, and None removes it. Returns a function that removes this one.
        """
        return _threadsafe(call(self._channel.on_message, callback))

    def on_batch(self, callback: Callable[[Batch], None] | None) -> Callable[[], None]:
        """As `on_message`, with a whole batch at a time."""
        return _threadsafe(call(self._channel.on_batch, callback))

    # -- events

    def on_event(self, callback: Callable[[ChannelEvent], None]) -> Callable[[], None]:
        """Call `callback` for each event: state, links, missed messages. Returns a function that removes it."""
        return _threadsafe(call(self._channel.on_event, callback))

    def events(self) -> Iterator[ChannelEvent]:
        """Events as they happen, until the channel is left."""
        return iterate(self._channel.events())

    # -- leaving

    def leave(self) -> None:
        """Leave gracefully: everything sent before is delivered, and no other member loses a message."""
        run(self._channel.leave())

    def close(self) -> None:
        """The same as `leave`, for `contextlib.closing`."""
        self.leave()

    def close_channel(self) -> None:
        """Close the channel for everyone. On a signed channel members ignore this, since any member could do it."""
        run(self._channel.close_channel())

    def abort(self) -> None:
        """Disconnect without notice, as if the process had been killed."""
        call(self._channel.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


def _threadsafe(unsubscribe: Callable[[], None]) -> Callable[[], None]:
    return lambda: call(unsubscribe)


@accepts_connect_options
def connect(name: str, options: ConnectOptions) -> Channel:
    """Join a channel and return when it is joined. The parameters are those of `broadloom.connect`."""
    pending = PendingConnection(name, options)

    async def join() -> asynchronous.Channel:
        return await pending

    return Channel(run(join()))
