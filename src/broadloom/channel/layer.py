"""Layers: several protocols on one channel, each with a mark of its own, so that none reads the messages of another.

The mark is in the kind of the frame, not in the payload. Messages of the application have none. The registry of marks
is in docs/topics.md.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.protocol.events import Batch, payload_bytes
from broadloom.wire.broadcast_frame import Priority
from broadloom.wire.payload_kind import layer_kind, layer_mark

if TYPE_CHECKING:
    from broadloom.channel.channel import Channel

log = logging.getLogger("broadloom")

UNKNOWN_LAYERS_MAX = 64
"""Unknown marks that are counted by name; the others together."""
OTHER_LAYERS = "other"


class Layer:
    """One layer on one channel, returned by `Channel.layer`."""

    def __init__(
        self, channel: "Channel", layers: "Layers", mark: str, on_batch: Callable[[Batch], None] | None
    ) -> None:
        self.mark = mark
        self._kind = layer_kind(mark)
        self._on_batch = on_batch
        self._channel = channel
        self._layers = layers

    async def broadcast(self, data: bytes, *, priority: int = Priority.NORMAL, ttl_s: float | None = None) -> int:
        """As `Channel.broadcast`, to this layer of the other members."""
        data = payload_bytes(data, "bytes")
        return await self._channel._broadcast_kind(data, self._kind, priority, ttl_s)

    def close(self) -> None:
        """Remove the layer: its messages are counted as unknown from now on."""
        self._channel._check_loop()
        self._layers.remove(self)
        self._channel._on_callbacks_changed()


class Layers:
    """The layers of one channel."""

    def __init__(self) -> None:
        self._by_kind: dict[int, Layer] = {}
        self.unknown: Counter[str] = Counter()
        """Messages of layers that this program does not run, by mark."""

    def __len__(self) -> int:
        return len(self._by_kind)

    def add(self, channel: "Channel", mark: str, on_batch: Callable[[Batch], None] | None) -> Layer:
        layer = Layer(channel, self, mark, on_batch)
        if on_batch is not None and self._by_kind.setdefault(layer._kind, layer) is not layer:
            raise ValueError(f"the layer {mark!r} is already in use in this program")
        return layer

    def remove(self, layer: Layer) -> None:
        if self._by_kind.get(layer._kind) is layer:
            del self._by_kind[layer._kind]

    def route(self, batch: Batch) -> None:
        layer = self._by_kind.get(batch.kind)
        if layer is None or layer._on_batch is None:  # only layers that receive are registered
            mark = layer_mark(batch.kind)
            is_counted = mark in self.unknown or len(self.unknown) < UNKNOWN_LAYERS_MAX
            self.unknown[mark if is_counted else OTHER_LAYERS] += len(batch)
            return
        try:
            layer._on_batch(batch)
        except Exception:
            log.exception("the callback of the layer %r failed", layer.mark)
