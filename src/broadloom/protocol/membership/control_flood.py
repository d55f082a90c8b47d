"""`ControlFlood`: control messages to every peer, and `DiameterEstimator`, which learns from their hops.

Each peer relays a flooded message once; it is neither retained nor ordered. All flooded messages begin with origin,
nonce and hops, so duplicates are recognized without decoding.
"""

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from broadloom.wire import decode, encode
from broadloom.wire.codec import WireMessage
from broadloom.wire.link_messages import Beacon, CloseChannel, DiameterEstimate, SlotSearch
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer

ESTIMATE_MAX = 32
"""A fabric of this diameter would have more peers than there are addresses: larger claims are false."""
SMALL_DIAMETER_MAX = 3
"""Up to this diameter estimate the fabric is small: floods are cheap, and there are few edges to choose from."""
FLOOD_DELAY_S = 10.0
"""Many peers observe a longer path at the same time; the first to flood it saves the others the flood."""
FLOODED_MESSAGES = (SlotSearch, DiameterEstimate, Beacon, CloseChannel)
FLOODED_NUMBERS = frozenset(kind.number for kind in FLOODED_MESSAGES)
FLOODS_REMEMBERED_MAX = 4096
HOPS_MAX = 2 * ESTIMATE_MAX
"""A flood that traveled further is dropped: peers with too many floods to remember have relayed it twice."""

_FLOOD_ID = struct.Struct(">QQI")
_FLOOD_ID_OFFSET = 8


class DiameterEstimator:
    """The largest number of hops observed by any peer. It sets the length of random walks, is flooded when it grows,
    and is reset in a full mesh."""

    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self.estimate = 1
        self._timer: Timer | None = None

    @property
    def is_small(self) -> bool:
        return self.estimate <= SMALL_DIAMETER_MAX

    def observe_hops(self, hops: int) -> None:
        if hops > self.estimate:
            self.estimate = min(hops, ESTIMATE_MAX)
            if self._timer is None:
                delay_s = FLOOD_DELAY_S * (0.1 + self._peer.runtime.random.random())
                self._timer = self._peer.runtime.call_later(delay_s, self._flood)

    def on_reported(self, estimate: int) -> None:
        """Another peer reports its estimate."""
        if estimate >= self.estimate:
            self.estimate = min(estimate, ESTIMATE_MAX)
            self._cancel_flood()

    def on_diameter_estimate(self, _link: "Link", message: DiameterEstimate) -> None:
        self.on_reported(message.diameter)

    def reset(self) -> None:
        self.estimate = 1
        self._cancel_flood()

    def _flood(self) -> None:
        self._timer = None
        if self._peer.links:
            self._peer.control_flood.start(DiameterEstimate, self.estimate)

    def _cancel_flood(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ControlFlood:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._seen: dict[tuple[int, int], None] = {}
        self._nonce = 0

    def start(self, kind: Callable[..., WireMessage], *fields: Any) -> int:
        """Flood a new message; returns its nonce."""
        self._nonce += 1
        me = self._peer.me.peer_id
        self.flood(kind(me, self._nonce, 1, *fields), me, self._nonce)
        return self._nonce

    def flood(self, message: WireMessage, origin: int, nonce: int) -> bool:
        """Flood the message of another peer in a part that it has not reached. False if it was seen here."""
        if not self._remember(origin, nonce):
            return False
        frame = encode(message)
        for link in self._peer.links:
            link.send_frame(frame)
        return True

    def on_frame(self, link: "Link", frame: bytes) -> WireMessage | None:
        """Relay and return a first copy; None for a duplicate."""
        try:
            origin, nonce, hops = _FLOOD_ID.unpack_from(frame, _FLOOD_ID_OFFSET)
        except struct.error:
            raise WireError("truncated flooded message") from None
        if hops > HOPS_MAX or origin == self._peer.me.peer_id or (origin, nonce) in self._seen:
            return None
        message: Any = decode(frame)
        self._remember(origin, nonce)
        relayed = encode(replace(message, hops=hops + 1))
        for other in self._peer.links:
            if other is not link:
                other.send_frame(relayed)
        self._peer.diameter.observe_hops(hops)
        return message  # type: ignore[no-any-return]

    def _remember(self, origin: int, nonce: int) -> bool:
        flood_id = origin, nonce
        if flood_id in self._seen:
            return False
        self._seen[flood_id] = None
        if len(self._seen) > FLOODS_REMEMBERED_MAX:
            del self._seen[next(iter(self._seen))]
        return True
