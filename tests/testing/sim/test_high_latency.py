"""Round trips of seconds: deadlines adapt, or are longer from the start (`exchange_timeout_s`)."""

import pytest

from broadloom.protocol import ChannelSettings, Tuning
from broadloom.protocol.events import PeerState
from broadloom.testing.sim.network import SimNetworkSettings
from broadloom.testing.sim.simulation import Simulation, SimulationSettings

PEERS = 7


def isolated_peers(seed: int, latency_ms: float, jitter_ms: float, peer: Tuning) -> list[int]:
    """Return the peers that are not fully connected four minutes after the last join."""
    network = SimNetworkSettings(latency_ms=(2.0, latency_ms), jitter_ms=jitter_ms)
    sim = Simulation(seed, SimulationSettings(peer=peer, network=network))
    nodes = []
    for _ in range(PEERS):
        nodes.append(sim.add_peer())
        sim.run_for(8.0)
    sim.run_for(240.0)
    return [
        number
        for number, node in enumerate(nodes)
        if node.peer.state is not PeerState.CONNECTED or len(node.peer.links) < node.peer.settings.degree
    ]


@pytest.mark.parametrize("seed", [3, 7, 20])
def test_default_settings_work_with_round_trips_of_two_seconds(seed: int) -> None:
    assert isolated_peers(seed, 1000.0, 200.0, Tuning()) == []


@pytest.mark.parametrize("seed", [4, 10, 12])
def test_deadlines_adapt_to_round_trips_of_five_seconds(seed: int) -> None:
    """Longer than the default of `exchange_timeout_s`. A peer stayed isolated."""
    assert isolated_peers(seed, 2500.0, 400.0, Tuning()) == []


def test_longer_timeouts_work_with_long_round_trips() -> None:
    longer = Tuning.of(ChannelSettings(exchange_timeout_s=12.0))
    for seed in (4, 10, 12):
        assert isolated_peers(seed, 2500.0, 400.0, longer) == []
    for seed in (3, 7, 20):
        assert isolated_peers(seed, 1500.0, 400.0, longer) == []
