"""One to eight peers, in every order of joins, leaves and crashes."""

from random import Random

import pytest

from broadloom.testing.checks.guarantees import adjacency
from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.simulation import Simulation
from tools import exhaustive
from tools.exhaustive import MembershipOp, OpSequence

EXHAUSTIVE_LENGTH = 6
"""Length of the exhaustive sequences; one more operation means about 2.5 times as many."""
RANDOM_LENGTH = 14
"""Length of the random sequences."""
PEERS_MAX = 8
RANDOM_SEQUENCES = 60
"""Number of random sequences for each degree and pace."""
PACES = "converging", "back-to-back"


def random_sequence(seed: int, length: int = RANDOM_LENGTH) -> OpSequence:
    """Return a random sequence that grows beyond a full mesh and shrinks again."""
    random = Random(seed)
    ops: list[MembershipOp] = []
    alive = 1
    for _ in range(length):
        choices = [MembershipOp.JOIN] * 2 * (alive < PEERS_MAX) + [MembershipOp.LEAVE, MembershipOp.CRASH] * (alive > 1)
        ops.append(random.choice(choices))
        alive += 1 if ops[-1] is MembershipOp.JOIN else -1
    return tuple(ops)


def assert_full_mesh_if_small(sim: Simulation, degree: int) -> None:
    graph = adjacency(sim.alive)
    if len(graph) <= degree + 1:
        for peer, neighbors in graph.items():
            assert sorted(neighbors) == sorted(graph.keys() - {peer})
    else:
        free_slots = sum(degree - len(neighbors) for neighbors in graph.values())
        assert free_slots == degree * len(graph) % 2


def test_all_sequences_yields_every_valid_sequence_once():
    words = [exhaustive.format_order(sequence) for sequence in exhaustive.all_sequences(3, PEERS_MAX)]
    assert words == ["jjj", "jjl", "jjd", "jlj", "jdj"]
    assert len(set(exhaustive.all_sequences(8, 3))) == len(list(exhaustive.all_sequences(8, 3)))


@pytest.mark.parametrize("peers_max", [1, 2, 5])
def test_sequences_stay_within_peer_bounds(peers_max: int):
    for sequence in exhaustive.all_sequences(5, peers_max):
        alive = [1]
        for operation in sequence:
            alive.append(alive[-1] + (1 if operation is MembershipOp.JOIN else -1))
        assert min(alive) >= 1
        assert max(alive) <= peers_max


def test_order_round_trips_through_its_spelling():
    word = "jjldjj"
    assert exhaustive.format_order(exhaustive.parse_order(word)) == word


@pytest.mark.parametrize(
    "prefix", [exhaustive.format_order(sequence) for sequence in exhaustive.all_sequences(3, PEERS_MAX)]
)
@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("mode", [DisseminationMode.FLOOD, DisseminationMode.TREE])
def test_every_short_order_keeps_the_guarantees(prefix: str, pace: str, mode: DisseminationMode):
    """All messages are small, so mixed mode equals flooding."""
    for sequence in exhaustive.all_sequences(EXHAUSTIVE_LENGTH, PEERS_MAX):
        if exhaustive.format_order(sequence).startswith(prefix):
            sim = exhaustive.run_order(sequence, seed=0, converge_between=pace == "converging", mode=mode)
            assert_full_mesh_if_small(sim, degree=4)


def run_random_order(seed: int, degree: int, pace: str) -> None:
    """Every second one along trees."""
    mode = DisseminationMode.TREE if seed % 2 else DisseminationMode.FLOOD
    sim = exhaustive.run_order(random_sequence(seed), seed, degree, converge_between=pace == "converging", mode=mode)
    assert_full_mesh_if_small(sim, degree)


@pytest.mark.parametrize("degree", [3, 4])
@pytest.mark.parametrize("pace", PACES)
def test_long_random_orders_keep_the_guarantees(degree: int, pace: str):
    for seed in range(RANDOM_SEQUENCES):
        run_random_order(seed, degree, pace)


def test_messages_that_no_member_has_delay_later_ones_only_while_on_alert():
    sequence = exhaustive.parse_order("jdjljdjjjjjldl")
    exhaustive.run_order(sequence, 400836, degree=3, converge_between=False, mode=DisseminationMode.FLOOD)


def run_seed(seed: int) -> None:
    """All degrees and paces."""
    for degree in (3, 4, 5, 6, 8):
        for pace in PACES:
            run_random_order(seed, degree, pace)
