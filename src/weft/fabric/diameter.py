"""The estimate of the fabric's diameter: the furthest that anything was seen to travel.

It sets the length of walks. It is spread when it grows and reset when the small regime is found.
"""

from typing import TYPE_CHECKING

from weft.wire.links import DiameterEstimate

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer
    from weft.fabric.world import Timer

ESTIMATE_MAX = 32
"""A fabric of this diameter would have more peers than there are addresses: larger claims are false."""
SPREAD_S = 10.0
"""Many peers see a longer way at the same time; the first of them to speak spares the others."""


class Diameter:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self.estimate = 1
        self._timer: Timer | None = None

    def travelled(self, hops: int) -> None:
        """Something came over this many links."""
        if hops > self.estimate:
            self.estimate = min(hops, ESTIMATE_MAX)
            if self._timer is None:
                delay_s = SPREAD_S * (0.1 + self._peer.world.random.random())
                self._timer = self._peer.world.after(delay_s, self._spread)

    def told(self, estimate: int) -> None:
        """Another peer knows of a longer way."""
        if estimate >= self.estimate:
            self.estimate = min(estimate, ESTIMATE_MAX)
            self._silence()

    def on_estimate(self, _link: "Link", message: DiameterEstimate) -> None:
        self.told(message.diameter)

    def reset(self) -> None:
        """Everyone is everyone's neighbour."""
        self.estimate = 1
        self._silence()

    def _spread(self) -> None:
        self._timer = None
        if self._peer.links:
            self._peer.floods.start(DiameterEstimate, self.estimate)

    def _silence(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
