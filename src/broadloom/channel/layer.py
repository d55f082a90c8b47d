"""Layers: several protocols on one channel, each with a mark of its own, so that none reads the messages of another.

The mark is in the kind of the frame, not in the payload. Messages of the application have none. The registry of marks
is in docs/topics.md.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broadloom.channel.arguments import CALLBACK_ERRORS
from broadloom.channel.direct_request import Reply
from broadloom.channel.requester import TIMEOUT_S, Handler, HasPeerId
from broadloom.protocol.events import Batch, payload_bytes
from broadloom.protocol.requests.incoming import IncomingRequest
from broadloom.protocol.requests.outgoing import Outcome, OutgoingRequest, RequestState
from broadloom.wire import PeerId
from broadloom.wire.broadcast_frame import Priority
from broadloom.wire.identity_messages import IDENTITY_KIND
from broadloom.wire.payload_kind import FLAGS_MASK, LAYER_SHIFT, layer_kind, layer_mark

if TYPE_CHECKING:
    from broadloom.channel.channel import Channel

log = logging.getLogger("broadloom")

UNKNOWN_LAYERS_MAX = 64
"""Unknown marks that are counted by name; the others together."""
OTHER_LAYERS = "other"


class Layer:
    """One layer on one channel, returned by `Channel.layer`."""

    def __init__(self, channel: "Channel", mark: str, on_batch: Callable[[Batch], None] | None) -> None:
        self.mark = mark
        self._channel = channel
        self._kind = layer_kind(mark)
        self._filters_content = False
        """The layer passes what the application gives it through the filter of the channel itself, before it makes
        messages of it (`FilteredSender._filter_content`); its messages do not pass it again."""
        self._receives = on_batch is not None
        self._is_closed = False
        if on_batch is not None:
            channel._layers.add(self._kind, on_batch)

    async def broadcast(self, data: bytes, *, priority: int = Priority.NORMAL, ttl_s: float | None = None) -> int:
        """As `Channel.broadcast`, to this layer of the other members."""
        data = payload_bytes(data, "bytes")
        if self._filters_content:
            return await self._channel._broadcast_unfiltered(data, self._kind, priority, ttl_s)
        return await self._channel._broadcast_kind(data, self._kind, priority, ttl_s)

    async def request(
        self,
        peer: PeerId | HasPeerId,
        data: bytes,
        *,
        timeout_s: float = TIMEOUT_S,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """As `Channel.request`, to this layer of the other member."""
        return await self._channel._request(
            peer, data, self._kind >> LAYER_SHIFT, timeout_s, headers, is_filtered=self._filters_content
        )

    async def tell(
        self,
        peer: PeerId | HasPeerId,
        data: bytes,
        *,
        timeout_s: float = TIMEOUT_S,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """As `Channel.tell`, to this layer of the other member."""
        await self._channel._request(
            peer, data, self._kind >> LAYER_SHIFT, timeout_s, headers, is_tell=True, is_filtered=self._filters_content
        )

    def on_request(self, handler: Handler | None, *, concurrency: int = 64) -> Callable[[], None]:
        """As `Channel.on_request`, for requests to this layer."""
        if self._is_closed:
            raise ValueError(f"the layer {self.mark!r} was closed: open it again with channel.layer")
        return self._channel._on_request(
            handler, self._kind >> LAYER_SHIFT, concurrency, is_filtered=self._filters_content
        )

    # -- without tasks and futures, for layers with a core of their own

    def _start_request(
        self, peer_id: PeerId, data: bytes, timeout_s: float, on_outcome: Callable[[Outcome], None], *, is_tell: bool
    ) -> OutgoingRequest:
        """Send a request or a one-way message. `on_outcome` is called exactly once, perhaps during this call."""
        requests = self._channel._node.peer.requests
        layer = self._kind >> LAYER_SHIFT
        return requests.request(peer_id, data, timeout_s, on_outcome, layer=layer, is_tell=is_tell)

    def _give_up(self, request: OutgoingRequest) -> None:
        if request.state is not RequestState.ENDED:
            self._channel._node.peer.requests.give_up(request)

    def _on_incoming(self, callback: Callable[[IncomingRequest], None], concurrency: int) -> None:
        self._channel._set_incoming(self._kind >> LAYER_SHIFT, callback, concurrency)

    def close(self) -> None:
        """Remove the layer: its messages are counted as unknown from now on."""
        self._channel._check_loop()
        if self._is_closed:
            return  # another `Layer` may use the mark by now
        self._channel._on_request(None, self._kind >> LAYER_SHIFT, 1)
        if self._receives:
            self._channel._layers.remove(self._kind)
            self._channel._on_layers_changed()
            self._channel._on_callbacks_changed()
        self._is_closed = True


class Layers:
    """The layers that one program receives on a channel."""

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[Batch], None]] = {}
        """By the kind of their frames."""
        self.unknown: Counter[str] = Counter()
        """Messages of layers that this program does not receive, by mark."""

    @property
    def kinds(self) -> tuple[int, ...]:
        return tuple(sorted(self._callbacks))

    def __len__(self) -> int:
        return len(self._callbacks)

    def receives(self, kind: int) -> bool:
        """Whether this program receives the layer of this kind, whatever its flags."""
        return kind & ~FLAGS_MASK in self._callbacks

    def add(self, kind: int, on_batch: Callable[[Batch], None]) -> None:
        if kind in self._callbacks:
            raise ValueError(f"the layer {layer_mark(kind)!r} is already in use in this program")
        self._callbacks[kind] = on_batch

    def remove(self, kind: int) -> None:
        del self._callbacks[kind]

    def route(self, batch: Batch) -> None:
        callback = self._callbacks.get(batch.kind)
        if callback is None:
            if batch.kind == IDENTITY_KIND:
                return  # for recorders
            mark = layer_mark(batch.kind)
            is_counted = mark in self.unknown or len(self.unknown) < UNKNOWN_LAYERS_MAX
            self.unknown[mark if is_counted else OTHER_LAYERS] += len(batch)
            return
        try:
            callback(batch)
        except CALLBACK_ERRORS:
            log.exception("the callback of the layer %r failed", layer_mark(batch.kind))
