"""One to eight peers, and every order in which they can join, leave and die."""

from random import Random

import pytest

from weft.sim import orders
from weft.sim.orders import Operation, Sequence
from weft.sim.promises import adjacency
from weft.sim.simulation import Simulation
from weft.sim.spread import Spread

LENGTH = 6
"""Of the sequences that are all tried; each further operation makes about two and a half times as many."""
LONG = 14
"""Of those that are drawn."""
PEERS_MAX = 8
DRAWN = 60
"""Long sequences, for each degree and each pace."""


def drawn(seed: int, length: int = LONG) -> Sequence:
    """A random sequence that goes up and down, through the small regime and out of it."""
    random = Random(seed)
    made: list[Operation] = []
    alive = 1
    for _ in range(length):
        choices = [Operation.JOIN] * 2 * (alive < PEERS_MAX) + [Operation.LEAVE, Operation.DIE] * (alive > 1)
        made.append(random.choice(choices))
        alive += 1 if made[-1] is Operation.JOIN else -1
    return tuple(made)


def assert_complete_if_small(sim: Simulation, degree: int) -> None:
    graph = adjacency(sim.alive)
    if len(graph) <= degree + 1:
        for peer, neighbours in graph.items():
            assert sorted(neighbours) == sorted(graph.keys() - {peer})
    else:
        holes = sum(degree - len(neighbours) for neighbours in graph.values())
        assert holes == degree * len(graph) % 2


def test_sequences_are_all_there_are():
    words = [orders.spell(sequence) for sequence in orders.sequences(3, PEERS_MAX)]
    assert words == ["jjj", "jjl", "jjd", "jlj", "jdj"]
    assert len(set(orders.sequences(8, 3))) == len(list(orders.sequences(8, 3)))


@pytest.mark.parametrize("peers_max", [1, 2, 5])
def test_sequences_keep_within_their_bounds(peers_max: int):
    for sequence in orders.sequences(5, peers_max):
        alive = [1]
        for operation in sequence:
            alive.append(alive[-1] + (1 if operation is Operation.JOIN else -1))
        assert min(alive) >= 1
        assert max(alive) <= peers_max


def test_a_word_spells_a_sequence():
    word = "jjldjj"
    assert orders.spell(orders.parse(word)) == word


@pytest.mark.parametrize("begun", [orders.spell(sequence) for sequence in orders.sequences(3, PEERS_MAX)])
@pytest.mark.parametrize("pace", ["calm", "hurried"])
@pytest.mark.parametrize("spread", [Spread.FLOOD, Spread.TREE])
def test_every_order_keeps_the_promises(begun: str, pace: str, spread: Spread):
    """(What is said is small, and so mixed is the same as flooded.)"""
    for sequence in orders.sequences(LENGTH, PEERS_MAX):
        if orders.spell(sequence).startswith(begun):
            sim = orders.play(sequence, seed=0, calm=pace == "calm", spread=spread)
            assert_complete_if_small(sim, degree=4)


@pytest.mark.parametrize("degree", [3, 4, *(pytest.param(each, marks=pytest.mark.long) for each in (5, 6, 8))])
@pytest.mark.parametrize("pace", ["calm", "hurried"])
def test_long_orders_keep_the_promises(degree: int, pace: str):
    """Every second one with everything along trees."""
    for seed in range(DRAWN):
        spread = Spread.TREE if seed % 2 else Spread.FLOOD
        sim = orders.play(drawn(seed), seed, degree, calm=pace == "calm", spread=spread)
        assert_complete_if_small(sim, degree)
