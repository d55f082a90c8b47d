"""The three ways in which messages spread, as an axis of every scenario; and what a way costs.

Which way a frame goes is decided by its author: by its size (`Settings.flood_bytes_max`), and by how often the author
speaks (`flood_per_s`). The traffic is the same for all three: mostly small messages, some large ones, and bursts, which
make bundles.
"""

from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from broadloom.protocol import Tuning
from broadloom.wire.framing import FRAME_BYTES_MAX

if TYPE_CHECKING:
    from broadloom.testing.sim.simulation import Simulation

UNLIMITED_PER_S = 1 << 30
"""More frames a second than anybody says."""
LARGE_BYTES = 1 << 10, 6 << 10
"""Sizes of the large messages: beyond what floods."""
BURST_MESSAGES = 2, 8
"""Messages in a burst."""
BURST_BYTES_MAX = 512
"""Of a message in a burst: some bundles flood, some do not."""


class DisseminationMode(Enum):
    """How broadcasts reach everyone."""

    FLOOD = "flood"
    """Everything goes to all neighbours."""
    TREE = "tree"
    """Everything goes by announce and pull."""
    MIXED = "mixed"
    """As Broadloom does by itself: small frames flood, large ones and those of busy authors go by announce and pull."""

    def apply_to(self, peer: Tuning) -> Tuning:
        """These settings with this way of spreading."""
        defaults = Tuning()
        match self:
            case DisseminationMode.FLOOD:
                return replace(peer, flood_bytes_max=FRAME_BYTES_MAX, flood_frames_per_s_max=UNLIMITED_PER_S)
            case DisseminationMode.TREE:
                return replace(peer, flood_bytes_max=0, flood_frames_per_s_max=defaults.flood_frames_per_s_max)
            case DisseminationMode.MIXED:
                return replace(
                    peer,
                    flood_bytes_max=defaults.flood_bytes_max,
                    flood_frames_per_s_max=defaults.flood_frames_per_s_max,
                )

    @classmethod
    def from_settings(cls, peer: Tuning) -> "DisseminationMode":
        """The way that these settings take."""
        if not peer.flood_bytes_max:
            return cls.TREE
        return cls.FLOOD if peer.flood_bytes_max >= FRAME_BYTES_MAX else cls.MIXED


def random_payloads(random: Random, small_bytes: int) -> list[bytes]:
    """What an author of the traffic says at once."""
    draw = random.random()
    if draw < 0.8:
        return [random.randbytes(small_bytes)]
    if draw < 0.9:
        return [random.randbytes(random.randint(*LARGE_BYTES))]
    return [random.randbytes(random.randint(1, BURST_BYTES_MAX)) for _ in range(random.randint(*BURST_MESSAGES))]


@dataclass(frozen=True, slots=True)
class DisseminationCost:
    """What spreading took over a time."""

    redundancy: float
    """Copies of a message that came to a peer beyond the one that it needs."""
    hops: int
    """Links that a message travelled to the one that was farthest on its way."""
    latency_max_ms: float
    """From the sending of a message to its last delivery."""


class CostMeter:
    """Watches the traffic of a fabric from now on."""

    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self._before = self._read_counters()
        simulation.checker.hops_max = 0
        simulation.checker.latency_max_s = 0.0

    def _read_counters(self) -> tuple[int, int]:
        counters = [node.peer.counters for node in self._simulation.alive]
        return sum(each.duplicates for each in counters), sum(each.delivered for each in counters)

    def read(self) -> DisseminationCost:
        duplicates, delivered = (now - then for now, then in zip(self._read_counters(), self._before, strict=True))
        watch = self._simulation.checker
        return DisseminationCost(duplicates / max(delivered, 1), watch.hops_max, watch.latency_max_s * 1000)
