"""Channels for programs that are not asynchronous: games and tools that own their main loop.

The same names as `broadloom.connect` and `Channel`, without `await`. One thread in the background runs the event loop
of all blocking channels of the process; everything here may be called from any thread.

    import broadloom.sync

    with broadloom.sync.connect("chess/club-42") as channel:
        channel.broadcast(b"e4")
        while message := channel.receive(timeout_s=10):
            print(message.text)
"""

import asyncio
import atexit
import importlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

import broadloom.channel as asynchronous
from broadloom.channel import BroadloomError, ChannelEvent, NotConnectedError, Status
from broadloom.protocol.events import Batch, Message
from broadloom.protocol.identity import Identity
from broadloom.transport.event_loop import new_event_loop
from broadloom.wire import PeerId
from broadloom.wire.broadcast_frame import Priority

if TYPE_CHECKING:
    from broadloom.groups import GroupSettings, Store
    from broadloom.groups.sync import Groups

T = TypeVar("T")
P = ParamSpec("P")

log = logging.getLogger("broadloom")

BRIDGE_TIMEOUT_S = 60.0
"""A call into the background thread that takes longer than this, beyond its own deadline, has gone wrong."""


EXIT_LINGER_S = 0.05
"""At exit, for the loop to close what it holds."""


class EventLoopThread:
    """The event loop of all blocking channels, in a thread of its own; started by the first, ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.thread: threading.Thread | None = None
        self.channels: weakref.WeakSet[asynchronous.Channel] = weakref.WeakSet()

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = new_event_loop()
                self.thread = threading.Thread(target=self._run, args=(self._loop,), name="broadloom", daemon=True)
                self.thread.start()
                atexit.register(self._stop)
            return self._loop

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.close()

    def _stop(self) -> None:
        """At exit: a daemon thread that is cut off inside the loop could bring the interpreter down."""
        if self._loop is not None and self.thread is not None:
            asyncio.run_coroutine_threadsafe(self._close_sockets(self._loop), self._loop)
            self.thread.join(timeout=2)

    async def _close_sockets(self, loop: asyncio.AbstractEventLoop) -> None:
        await asyncio.sleep(0)  # what was handed over goes out
        for channel in self.channels:
            channel._close_sockets()
        loop.call_later(EXIT_LINGER_S, loop.stop)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = BRIDGE_TIMEOUT_S) -> T:
        if threading.current_thread() is self.thread:
            work.close()
            raise RuntimeError("this would wait for itself: inside a callback use the `_nowait` methods, or a thread")
        future = asyncio.run_coroutine_threadsafe(work, self.loop())
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise


_loop_thread = EventLoopThread()


class Channel:
    """A channel whose methods wait for their results. Thread-safe. Made by `broadloom.sync.connect`."""

    def __init__(self, channel: asynchronous.Channel) -> None:
        self._channel = channel
        self._loop = _loop_thread.loop()
        _loop_thread.channels.add(channel)

    @property
    def name(self) -> str:
        return self._channel.name

    @property
    def peer_id(self) -> PeerId:
        return self._channel.peer_id

    @property
    def missed_count(self) -> int:
        return self._channel.missed_count

    @property
    def is_connected(self) -> bool:
        return self._channel.is_connected

    @property
    def few(self) -> int | None:
        return self._channel.few

    def identity(self, peer_id: PeerId) -> Identity | None:
        return self._channel.identity(peer_id)

    def display_name(self, peer_id: PeerId) -> str:
        return self._channel.display_name(peer_id)

    @property
    def unread_count(self) -> int:
        """Messages that wait to be read."""
        return self._channel.unread_count

    @property
    def has_overflowed(self) -> bool:
        """Whether the channel was left because this program did not read it in time (`overflow="leave"`)."""
        return self._channel.has_overflowed

    def wait_for_peers(self, timeout_s: float | None = None) -> None:
        """Wait until somebody else is there. TimeoutError if nobody comes in time."""
        _loop_thread.run(
            self._channel.wait_for_peers(timeout_s), None if timeout_s is None else timeout_s + BRIDGE_TIMEOUT_S
        )

    def status(self) -> Status:
        return _loop_thread.run(_call(self._channel.status))

    def groups(
        self,
        name: str,
        *,
        store: "Store | str | os.PathLike[str] | None" = None,
        settings: "GroupSettings | None" = None,
        on_unhandled: Callable[[Message], None] | None = None,
    ) -> "Groups":
        """Take part in the groups of this channel, as a member with this name: see `broadloom.groups.groups`."""
        # By name: groups stand on the channel, and whoever does not use them does not load them.
        layer = importlib.import_module("broadloom.groups.sync")
        made: Groups = layer.groups(self, name, store=store, settings=settings, on_unhandled=on_unhandled)
        return made

    # -- sending

    def broadcast(self, data: bytes, *, priority: int = Priority.NORMAL, ttl_s: float | None = None) -> int:
        """Send to all members; returns this message's number among our own. Waits if our links are behind."""
        return _loop_thread.run(self._channel.broadcast(data, priority=priority, ttl_s=ttl_s), None)

    def broadcast_nowait(self, data: bytes, *, priority: int = Priority.NORMAL, ttl_s: float | None = None) -> None:
        """Hand the message over and go on; from any thread, and from callbacks. An error is only logged."""
        self._loop.call_soon_threadsafe(self._broadcast, data, priority, ttl_s)

    def _broadcast(self, data: bytes, priority: int, ttl_s: float | None) -> None:
        try:
            self._channel.broadcast_nowait(data, priority=priority, ttl_s=ttl_s)
        except (BroadloomError, TypeError, ValueError) as problem:
            log.error("a message was not sent: %s", problem)

    def broadcast_file(
        self,
        path: str | os.PathLike[str],
        *,
        priority: int = Priority.NORMAL,
        ttl_s: float | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Send a file; others find it in `message.file`. `on_progress` is called in Broadloom's thread, with the bytes
        sent so far and in all: it must not block."""
        work = self._channel.broadcast_file(path, priority=priority, ttl_s=ttl_s, on_progress=on_progress)
        return _loop_thread.run(work, None)

    def broadcast_text(self, text: str) -> int:
        return _loop_thread.run(self._channel.broadcast_text(text), None)

    def broadcast_json(self, value: Any) -> int:
        return _loop_thread.run(self._channel.broadcast_json(value), None)

    # -- receiving

    def receive_nowait(self) -> Message | None:
        """The next message, or None at once if there is none: for a main loop that polls."""
        # Read without a lock: a message that comes right now is seen next time.
        if not self._channel.unread_count and not self._channel.has_overflowed:
            return None
        return _loop_thread.run(_call(self._channel.receive_nowait))

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None if none comes in time. NotConnected if none can come any more."""
        try:
            work = self._channel.receive(timeout_s)
            return _loop_thread.run(work, None if timeout_s is None else timeout_s + BRIDGE_TIMEOUT_S)
        except TimeoutError:
            return None

    def __iter__(self) -> Iterator[Message]:
        """All messages as they come, until the channel is left."""
        while True:
            try:
                message = self.receive()
            except NotConnectedError:
                return
            if message is not None:
                yield message

    def batches(self) -> Iterator[Batch]:
        """All messages as they come, those that came together at once, until the channel is left."""
        while (batch := _loop_thread.run(_next_batch(self._channel), None)) is not None:
            yield batch

    def on_message(self, callback: Callable[[Message], None] | None) -> None:
        """Call this for every message from now on, in Broadloom's thread: it must not block."""
        _loop_thread.run(_call(self._channel.on_message, callback))

    def on_batch(self, callback: Callable[[Batch], None] | None) -> None:
        """The same for all messages that came together, at once."""
        _loop_thread.run(_call(self._channel.on_batch, callback))

    def on_event(self, callback: Callable[[ChannelEvent], None]) -> Callable[[], None]:
        """Call this for every event, in Broadloom's thread. Returns a function that ends it."""
        end = _loop_thread.run(_call(self._channel.on_event, callback))

        def end_from_here() -> None:
            self._loop.call_soon_threadsafe(end)

        return end_from_here

    # -- the end

    def leave(self) -> None:
        _loop_thread.run(self._channel.leave())

    def close_channel(self) -> None:
        """Close the channel for everyone."""
        _loop_thread.run(self._channel.close_channel())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


async def _call(act: Callable[..., T], *args: Any) -> T:
    return act(*args)


async def _next_batch(channel: asynchronous.Channel) -> Batch | None:
    async with aclosing(channel.batches()) as batches:
        return await anext(batches, None)


async def _join(pending: asynchronous.PendingConnection) -> asynchronous.Channel:
    return await pending


def _with_signature_of(_model: Callable[P, Any]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Say it once: the options, their types and defaults are those of the model."""
    return lambda made: made


@_with_signature_of(asynchronous.connect)
def connect(name: str, **options: Any) -> Channel:
    """Join a channel and wait until it is joined. The options are those of `broadloom.connect`."""
    timeout_s = float(options.get("timeout_s", asynchronous.CONNECT_TIMEOUT_S))
    pending = asynchronous.connect(name, **options)
    return Channel(_loop_thread.run(_join(pending), timeout_s + BRIDGE_TIMEOUT_S))
