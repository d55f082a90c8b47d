"""Simulated fabrics with many members, for measurements of applications."""

from collections.abc import Sequence

from broadloom.protocol.constants import Tuning
from broadloom.testing.sim.network import SimNetworkSettings
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.simulation import Simulation, SimulationSettings

QUIET_S = 3.0
JOINS_MIN = 20
"""At a time, at least."""


def simulation(latency_ms: float, jitter_ms: float = 2.0, *, roster: bool = True, degree: int = 4) -> Simulation:
    """All links have the same latency."""
    network = SimNetworkSettings(latency_ms=(latency_ms, latency_ms), jitter_ms=jitter_ms)
    peer = Tuning(degree=degree)
    return Simulation(1, SimulationSettings(network=network, peer=peer, roster=roster, keep_received=False))


def grow(sim: Simulation, count: int) -> list[SimNode]:
    """Let peers join until the channel has this many members. If they have rosters, these begin with the last one: the
    records of a growing fabric would cost more than all that is measured."""
    while len(sim.members) < count:
        joining = max(JOINS_MIN, len(sim.nodes) // 2) if sim.nodes else 1
        for _ in range(min(joining, count - len(sim.nodes))):
            sim.add_peer().peer.roster.is_enabled = False
        assert sim.run_until(lambda: len(sim.members) == len(sim.nodes), 120.0)
    if sim.settings.roster:
        assert sim.run_until(lambda: sim.clock.now > sim.checker.links_changed_at + QUIET_S, 120.0)
        for node in sim.members:
            node.peer.roster.is_enabled = True
            node.peer.roster.on_links_changed(None)
            node.peer.roster.begin()
        assert sim.run_until(lambda: all(len(node.peer.roster.peer_ids()) == count for node in sim.members), 120.0)
    return sim.members


def percentile(took_s: Sequence[float], part: int) -> float:
    ordered = sorted(took_s)
    return ordered[len(ordered) * part // 100]


def percentiles_text(took_s: Sequence[float]) -> str:
    p50, p99 = (1000 * percentile(took_s, part) for part in (50, 99))
    return f"median {p50:.1f} ms, p99 {p99:.1f} ms, at most {1000 * max(took_s):.1f} ms"
