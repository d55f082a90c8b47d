"""`Channel` for synchronous programs: the names, results and exceptions of the asynchronous one, without `await`."""

import functools
from collections.abc import Callable
from typing import Any

from broadloom.channel.channel import Channel as AsyncChannel
from broadloom.channel.connect import PendingConnection
from broadloom.channel.layer import Layer as AsyncLayer
from broadloom.channel.options import ConnectOptions, accepts_connect_options
from broadloom.channel.requester import HasPeerId
from broadloom.channel.state import STATE_BYTES_MAX, TIMEOUT_S, Make, StateSnapshot
from broadloom.channel.subscription import Subscription as AsyncSubscription
from broadloom.protocol.events import Message
from broadloom.protocol.owner.card import ChannelCard
from broadloom.sync.bridge import (
    Attribute,
    ClosableSyncWrapper,
    SyncWrapper,
    awaits,
    call,
    calls,
    calls_into,
    iterates,
    loop_thread,
    run,
    subscribes,
)
from broadloom.wire import PeerId


class Subscription(ClosableSyncWrapper[AsyncSubscription]):
    """The synchronous counterpart of `broadloom.Subscription`."""

    name = Attribute[str]()
    pattern = Attribute[str | None]()
    position = calls(AsyncSubscription.position)
    unread_count = Attribute[int]()
    dropped_count = Attribute[int]()
    has_overflowed = Attribute[bool]()
    receive = awaits(AsyncSubscription.receive)
    receive_nowait = calls(AsyncSubscription.receive_nowait)
    batches = iterates(AsyncSubscription.batches)
    __iter__ = iterates(AsyncSubscription.__aiter__)
    close = calls(AsyncSubscription.close)


class Layer(SyncWrapper[AsyncLayer]):
    """The synchronous counterpart of `broadloom.Layer`."""

    mark = Attribute[str]()
    broadcast = awaits(AsyncLayer.broadcast)
    request = awaits(AsyncLayer.request)
    tell = awaits(AsyncLayer.tell)
    on_request = subscribes(AsyncLayer.on_request)
    close = calls(AsyncLayer.close)


class Channel(ClosableSyncWrapper[AsyncChannel]):
    """A joined channel, returned by `broadloom.sync.connect`. All methods are thread-safe.

    Callbacks run in Broadloom's background thread and must not block. They may use the methods that do not wait.
    """

    def __init__(self, twin: AsyncChannel) -> None:
        super().__init__(twin)
        loop_thread.add_channel(twin)

    name = Attribute[str]()
    peer_id = Attribute[PeerId]()
    is_connected = Attribute[bool]()
    missed_count = Attribute[int]()
    unread_count = Attribute[int]()
    has_overflowed = Attribute[bool]()
    identity = calls(AsyncChannel.identity)
    display_name = calls(AsyncChannel.display_name)
    status = calls(AsyncChannel.status)
    set_bootstrap = calls(AsyncChannel.set_bootstrap)
    wait_for_peers = awaits(AsyncChannel.wait_for_peers)
    members = calls(AsyncChannel.members)
    member = calls(AsyncChannel.member)
    wait_for_roster = awaits(AsyncChannel.wait_for_roster)

    broadcast = awaits(AsyncChannel.broadcast)
    broadcast_nowait = calls(AsyncChannel.broadcast_nowait)
    broadcast_text = awaits(AsyncChannel.broadcast_text)
    broadcast_json = awaits(AsyncChannel.broadcast_json)
    broadcast_file = awaits(AsyncChannel.broadcast_file)
    identify = awaits(AsyncChannel.identify)
    advert = awaits(AsyncChannel.advert)

    request = awaits(AsyncChannel.request)
    tell = awaits(AsyncChannel.tell)
    on_request = subscribes(AsyncChannel.on_request)

    receive = awaits(AsyncChannel.receive)
    batches = iterates(AsyncChannel.batches)
    __iter__ = iterates(AsyncChannel.__aiter__)
    subscribe = calls_into(Subscription, AsyncChannel.subscribe)
    layer = calls_into(Layer, AsyncChannel.layer)
    on_message = subscribes(AsyncChannel.on_message)
    on_batch = subscribes(AsyncChannel.on_batch)
    on_event = subscribes(AsyncChannel.on_event)
    events = iterates(AsyncChannel.events)

    card = Attribute[ChannelCard | None]()
    publish = awaits(AsyncChannel.publish)

    leave = awaits(AsyncChannel.leave)
    close_channel = awaits(AsyncChannel.close_channel)
    abort = calls(AsyncChannel.abort)

    def on_state(self, name: str, make: Make | None, *, reader: Subscription) -> Callable[[], None]:
        """Serve the state `name` of this program to members that fetch it: `broadloom.Channel.on_state`. `make` runs in
        the background thread, while this program waits for a message of `reader` or is between two of them."""
        remove = call(self._wrapped.on_state, name, make, reader=_unwrapped(reader))
        return functools.partial(call, remove)

    def fetch_state(
        self,
        name: str,
        *,
        reader: Subscription,
        helper: PeerId | HasPeerId | None = None,
        timeout_s: float = TIMEOUT_S,
        bytes_max: int = STATE_BYTES_MAX,
    ) -> StateSnapshot:
        """Fetch the state `name` from a member that offers it: `broadloom.Channel.fetch_state`."""
        fetching = self._wrapped.fetch_state(
            name, reader=_unwrapped(reader), helper=helper, timeout_s=timeout_s, bytes_max=bytes_max
        )
        return run(fetching)

    def receive_nowait(self) -> Message | None:
        """The next message, or None if the inbox is empty: for a main loop that polls."""
        # Checked without changing threads: a message that arrives right now is returned by the next call.
        if not self.unread_count and not self.has_overflowed:
            return None
        return call(self._wrapped.receive_nowait)


def _unwrapped(reader: Any) -> AsyncSubscription:
    """Whatever else it is, the asynchronous method rejects."""
    return reader._wrapped if isinstance(reader, Subscription) else reader


@accepts_connect_options
def connect(channel: str, options: ConnectOptions) -> Channel:
    """Join a channel and return when it is joined. The parameters are those of `broadloom.connect`."""
    pending = PendingConnection(channel, options)

    async def join() -> AsyncChannel:
        return await pending

    return Channel(run(join()))
