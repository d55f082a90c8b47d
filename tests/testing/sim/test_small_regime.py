"""One to eight peers, and every order in which they can join, leave and die."""

from random import Random

import pytest

from broadloom.testing.checks.guarantees import adjacency
from broadloom.testing.sim import exhaustive
from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.exhaustive import MembershipOp, OpSequence
from broadloom.testing.sim.simulation import Simulation

EXHAUSTIVE_LENGTH = 6
"""Of the sequences that are all tried; each further operation makes about two and a half times as many."""
RANDOM_LENGTH = 14
"""Of those that are drawn."""
PEERS_MAX = 8
RANDOM_SEQUENCES = 60
"""Long sequences, for each degree and each pace."""


def random_sequence(seed: int, length: int = RANDOM_LENGTH) -> OpSequence:
    """A random sequence that goes up and down, through the small regime and out of it."""
    random = Random(seed)
    ops: list[MembershipOp] = []
    alive = 1
    for _ in range(length):
        choices = [MembershipOp.JOIN] * 2 * (alive < PEERS_MAX) + [MembershipOp.LEAVE, MembershipOp.DIE] * (alive > 1)
        ops.append(random.choice(choices))
        alive += 1 if ops[-1] is MembershipOp.JOIN else -1
    return tuple(ops)


def assert_full_mesh_if_small(sim: Simulation, degree: int) -> None:
    graph = adjacency(sim.alive)
    if len(graph) <= degree + 1:
        for peer, neighbours in graph.items():
            assert sorted(neighbours) == sorted(graph.keys() - {peer})
    else:
        free_slots = sum(degree - len(neighbours) for neighbours in graph.values())
        assert free_slots == degree * len(graph) % 2


def test_sequences_are_all_there_are():
    words = [exhaustive.format_order(sequence) for sequence in exhaustive.all_sequences(3, PEERS_MAX)]
    assert words == ["jjj", "jjl", "jjd", "jlj", "jdj"]
    assert len(set(exhaustive.all_sequences(8, 3))) == len(list(exhaustive.all_sequences(8, 3)))


@pytest.mark.parametrize("peers_max", [1, 2, 5])
def test_sequences_keep_within_their_bounds(peers_max: int):
    for sequence in exhaustive.all_sequences(5, peers_max):
        alive = [1]
        for operation in sequence:
            alive.append(alive[-1] + (1 if operation is MembershipOp.JOIN else -1))
        assert min(alive) >= 1
        assert max(alive) <= peers_max


def test_a_word_spells_a_sequence():
    word = "jjldjj"
    assert exhaustive.format_order(exhaustive.parse_order(word)) == word


@pytest.mark.parametrize(
    "begun", [exhaustive.format_order(sequence) for sequence in exhaustive.all_sequences(3, PEERS_MAX)]
)
@pytest.mark.parametrize("pace", ["calm", "hurried"])
@pytest.mark.parametrize("spread", [DisseminationMode.FLOOD, DisseminationMode.TREE])
def test_every_order_keeps_the_promises(begun: str, pace: str, spread: DisseminationMode):
    """(What is said is small, and so mixed is the same as flooded.)"""
    for sequence in exhaustive.all_sequences(EXHAUSTIVE_LENGTH, PEERS_MAX):
        if exhaustive.format_order(sequence).startswith(begun):
            sim = exhaustive.run_order(sequence, seed=0, converge_between=pace == "calm", mode=spread)
            assert_full_mesh_if_small(sim, degree=4)


@pytest.mark.parametrize("degree", [3, 4, *(pytest.param(each, marks=pytest.mark.long) for each in (5, 6, 8))])
@pytest.mark.parametrize("pace", ["calm", "hurried"])
def test_long_orders_keep_the_promises(degree: int, pace: str):
    """Every second one with everything along trees."""
    for seed in range(RANDOM_SEQUENCES):
        spread = DisseminationMode.TREE if seed % 2 else DisseminationMode.FLOOD
        sim = exhaustive.run_order(random_sequence(seed), seed, degree, converge_between=pace == "calm", mode=spread)
        assert_full_mesh_if_small(sim, degree)
