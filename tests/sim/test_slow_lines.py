"""Round trips of seconds: the fabric grows all the same, as long as a question can be answered within `call_s`."""

import pytest

from weft.fabric import Settings
from weft.fabric.state import State
from weft.sim.network import NetworkSettings
from weft.sim.simulation import SimSettings, Simulation

PEERS = 7


def lonely(seed: int, latency_ms: float, jitter_ms: float, peer: Settings) -> list[int]:
    """Peers that are in no fabric with the others four minutes after all have come."""
    lines = NetworkSettings(latency_ms=(2.0, latency_ms), jitter_ms=jitter_ms)
    sim = Simulation(seed, SimSettings(peer=peer, network=lines))
    nodes = []
    for _ in range(PEERS):
        nodes.append(sim.add())
        sim.run(8.0)
    sim.run(240.0)
    return [
        number
        for number, node in enumerate(nodes)
        if node.peer.state is not State.CONNECTED or len(node.peer.links) < node.peer.settings.degree
    ]


@pytest.mark.parametrize("seed", [3, 7, 20])
def test_round_trips_of_two_seconds_need_no_other_settings(seed: int) -> None:
    assert lonely(seed, 1000.0, 200.0, Settings()) == []


def test_longer_ones_need_more_patience() -> None:
    """Three times as much of it; as it is, somebody stays alone."""
    patient = Settings(call_s=12.0, claim_s=7.5, reservation_s=18.0, join_s=6.0)
    assert lonely(20, 1500.0, 400.0, Settings()) != []
    for seed in (3, 7, 20):
        assert lonely(seed, 1500.0, 400.0, patient) == []
