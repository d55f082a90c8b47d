"""Closing a channel for all peers."""

from dataclasses import replace

import pytest

from broadloom.protocol import PeerState, Tuning
from broadloom.testing.sim.simulation import Simulation, SimulationSettings


def grown(peers: int, settings: SimulationSettings | None = None, seed: int = 1) -> Simulation:
    sim = Simulation(seed, settings)
    for _ in range(peers):
        sim.add_peer()
        sim.run_for(0.5)
    sim.converge(60)
    return sim


@pytest.mark.parametrize("peers", [1, 2, 5, 40])
def test_close_channel_stops_all_peers(peers: int):
    sim = grown(peers)
    sim.nodes[-1].peer.close_channel()
    assert sim.run_until(lambda: not sim.alive, timeout_s=2)
    assert {node.peer.state for node in sim.nodes} == {PeerState.LEFT}
    assert all(len(node.peer.links) == 0 for node in sim.nodes)
    assert sim.network.listening == {}


def test_message_sent_before_close_channel_is_delivered():
    sim = grown(40)
    author = sim.nodes[7]
    author.broadcast(b"last message")
    author.peer.close_channel()
    assert sim.run_until(lambda: not sim.alive, timeout_s=2)
    assert sim.checker.delivery_count == 39


def test_close_channel_reaches_all_peers_despite_crashes():
    sim = grown(40, seed=1)  # with seed 2 a survivor loses all its neighbors, and nobody can reach it
    sim.kill(sim.sample(8))
    sim.alive[0].peer.close_channel()
    assert sim.run_until(lambda: not sim.alive, timeout_s=30)


def test_peers_ignore_close_channel_when_not_accepted():
    sim = grown(12, SimulationSettings(peer=replace(Tuning(), accept_channel_close=False)))
    sim.nodes[0].peer.close_channel()
    sim.run_for(5)
    assert len(sim.alive) == 11
    sim.converge(60)
