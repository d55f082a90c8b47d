"""`Channel` for synchronous programs: the names, results and exceptions of the asynchronous one, without `await`."""

from types import TracebackType
from typing import Self

from broadloom.channel.channel import Channel as AsyncChannel
from broadloom.channel.connect import PendingConnection
from broadloom.channel.options import ConnectOptions, accepts_connect_options
from broadloom.protocol.events import Message
from broadloom.sync.bridge import awaits, call, calls, iterates, loop_thread, run, subscribes
from broadloom.wire import PeerId


class Channel:
    """A joined channel, returned by `broadloom.sync.connect`. All methods are thread-safe.

    Callbacks run in Broadloom's background thread and must not block. They may use the methods that do not wait.
    """

    def __init__(self, twin: AsyncChannel) -> None:
        self._twin = twin
        loop_thread.add_channel(twin)

    identity = calls(AsyncChannel.identity)
    display_name = calls(AsyncChannel.display_name)
    status = calls(AsyncChannel.status)
    wait_for_peers = awaits(AsyncChannel.wait_for_peers)

    broadcast = awaits(AsyncChannel.broadcast)
    broadcast_nowait = calls(AsyncChannel.broadcast_nowait)
    broadcast_text = awaits(AsyncChannel.broadcast_text)
    broadcast_json = awaits(AsyncChannel.broadcast_json)
    broadcast_file = awaits(AsyncChannel.broadcast_file)

    receive = awaits(AsyncChannel.receive)
    batches = iterates(AsyncChannel.batches)
    __iter__ = iterates(AsyncChannel.__aiter__)
    on_message = subscribes(AsyncChannel.on_message)
    on_batch = subscribes(AsyncChannel.on_batch)
    on_event = subscribes(AsyncChannel.on_event)
    events = iterates(AsyncChannel.events)

    leave = awaits(AsyncChannel.leave)
    close = awaits(AsyncChannel.aclose)
    close_channel = awaits(AsyncChannel.close_channel)
    abort = calls(AsyncChannel.abort)

    @property
    def name(self) -> str:
        return self._twin.name

    @property
    def peer_id(self) -> PeerId:
        """This program's id on the channel, new at each connect."""
        return self._twin.peer_id

    @property
    def is_connected(self) -> bool:
        return self._twin.is_connected

    @property
    def missed_count(self) -> int:
        """Messages that this program will not receive; each was reported in a `Missed` event."""
        return self._twin.missed_count

    @property
    def unread_count(self) -> int:
        """Number of messages in the inbox."""
        return self._twin.unread_count

    @property
    def has_overflowed(self) -> bool:
        """Whether the channel was left because this program did not read in time (`overflow="leave"`)."""
        return self._twin.has_overflowed

    def receive_nowait(self) -> Message | None:
        """The next message, or None if the inbox is empty: for a main loop that polls."""
        # Checked without changing threads: a message that arrives right now is returned by the next call.
        if not self._twin.unread_count and not self._twin.has_overflowed:
            return None
        return call(self._twin.receive_nowait)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


@accepts_connect_options
def connect(name: str, options: ConnectOptions) -> Channel:
    """Join a channel and return when it is joined. The parameters are those of `broadloom.connect`."""
    pending = PendingConnection(name, options)

    async def join() -> AsyncChannel:
        return await pending

    return Channel(run(join()))
