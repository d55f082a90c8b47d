"""Control messages to everyone: passed on by each peer once, never retained, never ordered.

All flooded messages begin with origin, nonce and hops, so a duplicate is told without decoding it.
"""

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weft.fabric.diameter import ESTIMATE_MAX
from weft.wire import decode, encode
from weft.wire.codec import Message
from weft.wire.errors import WireError
from weft.wire.links import Beacon, DiameterEstimate, PortSearch, Shutdown

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer

FLOODED = (PortSearch, DiameterEstimate, Beacon, Shutdown)
FLOODED_NUMBERS = frozenset(kind.number for kind in FLOODED)
SEEN_MAX = 4096
"""Floods remembered."""

HOPS_MAX = 2 * ESTIMATE_MAX
"""Nothing travels so far. What does was passed on again by peers that had too many floods to remember it, and ends."""

_NAME = struct.Struct(">QQI")
_NAME_AT = 8


class Floods:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._seen: dict[tuple[int, int], None] = {}
        self._nonce = 0

    def start(self, kind: Callable[..., Message], *fields: Any) -> int:
        """Flood a message from here; returns its nonce."""
        self._nonce += 1
        me = self._peer.me.peer
        self.spread(kind(me, self._nonce, 1, *fields), me, self._nonce)
        return self._nonce

    def spread(self, message: Message, origin: int, nonce: int) -> bool:
        """Flood a message that another peer started, in a part that it has not reached. False if it has been here."""
        if not self._is_new(origin, nonce):
            return False
        frame = encode(message)
        for link in self._peer.links:
            link.send_frame(frame)
        return True

    def on_frame(self, link: "Link", frame: bytes) -> Message | None:
        """Pass a first copy on and return it; None for a duplicate."""
        try:
            origin, nonce, hops = _NAME.unpack_from(frame, _NAME_AT)
        except struct.error:
            raise WireError("a flooded message that ends too early") from None
        if hops > HOPS_MAX or origin == self._peer.me.peer or (origin, nonce) in self._seen:
            return None
        message: Any = decode(frame)
        self._is_new(origin, nonce)
        onward = encode(replace(message, hops=hops + 1))
        for other in self._peer.links:
            if other is not link:
                other.send_frame(onward)
        self._peer.diameter.travelled(hops)
        return message  # type: ignore[no-any-return]

    def _is_new(self, origin: int, nonce: int) -> bool:
        name = origin, nonce
        if name in self._seen:
            return False
        self._seen[name] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        return True
