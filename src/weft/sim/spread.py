"""The three ways in which messages spread, as an axis of every scenario; and what a way costs.

Which way a frame goes is decided by its author: by its size (`Settings.flood_bytes_max`), and by how often the author
speaks (`flood_per_s`). The traffic is the same for all three: mostly small messages, some large ones, and bursts, which
make bundles.
"""

from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from weft.fabric import Settings
from weft.wire.framing import FRAME_BYTES_MAX

if TYPE_CHECKING:
    from weft.sim.simulation import Simulation

ALWAYS = 1 << 30
"""More frames a second than anybody says."""
LARGE_BYTES = 1 << 10, 6 << 10
"""Sizes of the large messages: beyond what floods."""
BURST = 2, 8
"""Messages in a burst."""
BURST_BYTES_MAX = 512
"""Of a message in a burst: some bundles flood, some do not."""


class Spread(Enum):
    """How broadcasts reach everyone."""

    FLOOD = "flood"
    """Everything goes to all neighbours."""
    TREE = "tree"
    """Everything goes by announce and pull."""
    MIXED = "mixed"
    """As Weft does by itself: small frames flood, large ones and those of busy authors go by announce and pull."""

    def settings(self, peer: Settings) -> Settings:
        """These settings with this way of spreading."""
        usual = Settings()
        match self:
            case Spread.FLOOD:
                return replace(peer, flood_bytes_max=FRAME_BYTES_MAX, flood_per_s=ALWAYS)
            case Spread.TREE:
                return replace(peer, flood_bytes_max=0, flood_per_s=usual.flood_per_s)
            case Spread.MIXED:
                return replace(peer, flood_bytes_max=usual.flood_bytes_max, flood_per_s=usual.flood_per_s)

    @classmethod
    def of(cls, peer: Settings) -> "Spread":
        """The way that these settings take."""
        if not peer.flood_bytes_max:
            return cls.TREE
        return cls.FLOOD if peer.flood_bytes_max >= FRAME_BYTES_MAX else cls.MIXED


def words(random: Random, small_bytes: int) -> list[bytes]:
    """What an author of the traffic says at once."""
    drawn = random.random()
    if drawn < 0.8:
        return [random.randbytes(small_bytes)]
    if drawn < 0.9:
        return [random.randbytes(random.randint(*LARGE_BYTES))]
    return [random.randbytes(random.randint(1, BURST_BYTES_MAX)) for _ in range(random.randint(*BURST))]


@dataclass(frozen=True, slots=True)
class Cost:
    """What spreading took over a time."""

    redundancy: float
    """Copies of a message that came to a peer beyond the one that it needs."""
    hops: int
    """Links that a message travelled to the one that was farthest on its way."""
    late_ms: float
    """From the sending of a message to its last delivery."""


class Meter:
    """Watches the traffic of a fabric from now on."""

    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self._before = self._counted()
        simulation.watch.hops_max = 0
        simulation.watch.late_s = 0.0

    def _counted(self) -> tuple[int, int]:
        counters = [node.peer.counters for node in self._simulation.alive]
        return sum(each.duplicates for each in counters), sum(each.delivered for each in counters)

    def read(self) -> Cost:
        duplicates, delivered = (now - then for now, then in zip(self._counted(), self._before, strict=True))
        watch = self._simulation.watch
        return Cost(duplicates / max(delivered, 1), watch.hops_max, watch.late_s * 1000)
