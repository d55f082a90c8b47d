"""Layers: several protocols on one channel, each with a mark of its own, so that none reads the messages of another.

The mark is in the kind of the frame, not in the payload. Messages of the application have none. The registry of marks
is docs/protocol/layers.md.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.protocol.events import Batch
from broadloom.wire.broadcast_frame import Priority

if TYPE_CHECKING:
    from broadloom.channel.channel import Channel

log = logging.getLogger("broadloom")

LAYER_SHIFT = 16
UNKNOWN_LAYERS_MAX = 64
"""Unknown marks that are counted by name."""


def layer_kind(mark: str) -> int:
    """The kind of frames of this layer, without content and flags."""
    if not re.fullmatch("[A-Za-z0-9]{2}", mark):
        raise ValueError(f"layer {mark!r}: a mark is two ASCII letters or digits")
    return int.from_bytes(mark.encode(), "big") << LAYER_SHIFT


def layer_mark(kind: int) -> str:
    """The mark of a frame; unprintable ones in hex."""
    mark = (kind >> LAYER_SHIFT).to_bytes(2, "big")
    return mark.decode() if mark.isalnum() else mark.hex()


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
        return await self._channel._broadcast_kind(data, self._kind, priority, ttl_s)

    def close(self) -> None:
        """Remove the layer: its messages are counted as unknown from now on."""
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
        if layer is None or layer._on_batch is None:
            mark = layer_mark(batch.kind)
            if mark in self.unknown or len(self.unknown) < UNKNOWN_LAYERS_MAX:
                self.unknown[mark] += len(batch)
            return
        try:
            layer._on_batch(batch)
        except Exception:
            log.exception("the callback of the layer %r failed", layer.mark)
