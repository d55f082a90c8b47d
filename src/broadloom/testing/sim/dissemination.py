"""Dissemination modes as an axis of every scenario, their traffic, and a meter for their cost.

The author decides how a frame spreads, by its size (`ChannelSettings.flood_bytes_max`) and by the author's frame rate
(`flood_frames_per_s_max`). The traffic is the same in all modes: mostly small messages, some large ones, and bursts,
which fill bundles.
"""

from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from broadloom.protocol import ChannelSettings, Tuning
from broadloom.wire.framing import FRAME_BYTES_MAX

if TYPE_CHECKING:
    from broadloom.testing.sim.simulation import Simulation

UNLIMITED_PER_S = 1 << 30
"""More frames per second than any author sends."""
LARGE_BYTES = 1 << 10, 6 << 10
"""Range of the size of large messages; above `flood_bytes_max`."""
BURST_MESSAGES = 2, 8
BURST_BYTES_MAX = 512
"""Maximum size of a message in a burst; some bundles are flooded, some are not."""


class DisseminationMode(Enum):
    FLOOD = "flood"
    """Every frame goes to all neighbors."""
    TREE = "tree"
    """Every frame goes along its author's Plumtree: eager push to children, IHave to the others."""
    MIXED = "mixed"
    """The default: small frames are flooded; large frames and those of busy authors go along trees."""

    def apply_to(self, settings: ChannelSettings) -> Tuning:
        peer, defaults = Tuning.of(settings), Tuning()
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
    def from_settings(cls, peer: ChannelSettings) -> "DisseminationMode":
        if not peer.flood_bytes_max:
            return cls.TREE
        return cls.FLOOD if peer.flood_bytes_max >= FRAME_BYTES_MAX else cls.MIXED


def random_payloads(random: Random, small_bytes: int) -> list[bytes]:
    """Return the messages that an author of the traffic sends at once."""
    draw = random.random()
    if draw < 0.8:
        return [random.randbytes(small_bytes)]
    if draw < 0.9:
        return [random.randbytes(random.randint(*LARGE_BYTES))]
    return [random.randbytes(random.randint(1, BURST_BYTES_MAX)) for _ in range(random.randint(*BURST_MESSAGES))]


@dataclass(frozen=True, slots=True)
class DisseminationCost:
    redundancy: float
    """Duplicates per delivery."""
    hops: int
    """Longest path of any delivery."""
    latency_max_ms: float
    """Longest time from sending to delivery."""


class CostMeter:
    """Measures the traffic since its creation."""

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
        checker = self._simulation.checker
        return DisseminationCost(duplicates / max(delivered, 1), checker.hops_max, checker.latency_max_s * 1000)
