"""Closing a channel for everyone."""

from dataclasses import replace

import pytest

from broadloom.protocol import PeerState, Tuning
from broadloom.testing.sim.simulation import Simulation, SimulationSettings


def grown(peers: int, settings: SimulationSettings | None = None, seed: int = 1) -> Simulation:
    sim = Simulation(seed, settings)
    for _ in range(peers):
        sim.add()
        sim.run(0.5)
    sim.converge(60)
    return sim


@pytest.mark.parametrize("peers", [1, 2, 5, 40])
def test_everyone_goes_at_one_word(peers: int):
    sim = grown(peers)
    sim.nodes[-1].peer.close_channel()
    assert sim.run_until(lambda: not sim.alive, timeout_s=2)
    assert {node.peer.state for node in sim.nodes} == {PeerState.LEFT}
    assert all(len(node.peer.links) == 0 for node in sim.nodes)
    assert sim.network.listening == {}


def test_what_was_said_before_the_word_is_heard_before_it():
    sim = grown(40)
    author = sim.nodes[7]
    sim.broadcast(author, b"last words")
    author.peer.close_channel()
    assert sim.run_until(lambda: not sim.alive, timeout_s=2)
    assert sim.checker.delivery_count == 39


def test_it_ends_also_when_some_die_meanwhile():
    sim = grown(40)
    sim.kill(sim.sample(8))
    sim.alive[0].peer.close_channel()
    assert sim.run_until(lambda: not sim.alive, timeout_s=30)


def test_nobody_goes_who_does_not_obey():
    sim = grown(12, SimulationSettings(peer=replace(Tuning(), accept_channel_close=False)))
    sim.nodes[0].peer.close_channel()
    sim.run(5)
    assert len(sim.alive) == 11
    sim.converge(60)
