"""Round trips of seconds: the fabric grows all the same, as long as a question can be answered within `call_s`."""

import pytest

from broadloom.protocol import Tuning
from broadloom.protocol.events import PeerState
from broadloom.testing.sim.network import SimNetworkSettings
from broadloom.testing.sim.simulation import Simulation, SimulationSettings

PEERS = 7


def isolated_peers(seed: int, latency_ms: float, jitter_ms: float, peer: Tuning) -> list[int]:
    """Peers that are in no fabric with the others four minutes after all have come."""
    lines = SimNetworkSettings(latency_ms=(2.0, latency_ms), jitter_ms=jitter_ms)
    sim = Simulation(seed, SimulationSettings(peer=peer, network=lines))
    nodes = []
    for _ in range(PEERS):
        nodes.append(sim.add())
        sim.run(8.0)
    sim.run(240.0)
    return [
        number
        for number, node in enumerate(nodes)
        if node.peer.state is not PeerState.CONNECTED or len(node.peer.links) < node.peer.settings.degree
    ]


@pytest.mark.parametrize("seed", [3, 7, 20])
def test_round_trips_of_two_seconds_need_no_other_settings(seed: int) -> None:
    assert isolated_peers(seed, 1000.0, 200.0, Tuning()) == []


def test_longer_ones_need_more_patience() -> None:
    """Three times as much of it; as it is, somebody stays alone."""
    patient = Tuning(exchange_timeout_s=12.0, slot_reservation_s=7.5, edge_reservation_s=18.0, join_timeout_s=6.0)
    assert isolated_peers(20, 1500.0, 400.0, Tuning()) != []
    for seed in (3, 7, 20):
        assert isolated_peers(seed, 1500.0, 400.0, patient) == []
