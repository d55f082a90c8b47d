"""The promises between peers: each check is seen to fire on bad data, and to be silent on good."""

import pytest

from broadloom.testing.checks.audit import (
    STABLE_PERIOD_NS,
    DepartedPeer,
    PeerView,
    check_connected,
    expected_deliveries,
    find_convergence_problems,
    find_false_missed,
)
from broadloom.testing.checks.delivery_log import AuthorHead


def ring(count: int, *, first: int = 100) -> dict[int, PeerView]:
    """Every peer is linked to the two before and the two behind it: regular, of degree 4."""
    ids = [first + number for number in range(count)]
    return {
        first + number: PeerView(
            ids[number], "connected", tuple(ids[(number + step) % count] for step in (-2, -1, 1, 2)), 0
        )
        for number in range(count)
    }


def with_neighbors(views: dict[int, PeerView], number: int, neighbors: tuple[int, ...], state: str = "connected"):
    return views | {number: PeerView(views[number].peer_id, state, neighbors)}


def test_regular_and_whole():
    assert find_convergence_problems(ring(8), 4) is None
    assert check_connected(ring(8)) is None


def test_small_ones_are_linked_to_all():
    full = {
        each: PeerView(each, "connected", tuple(other for other in (1, 2, 3) if other != each)) for each in (1, 2, 3)
    }
    assert find_convergence_problems(full, 4) is None
    assert "free slots" in str(find_convergence_problems(with_neighbors(with_neighbors(full, 1, (2,)), 3, (2,)), 4))


@pytest.mark.parametrize(
    ("neighbours", "state", "complaint"),
    [
        ((106, 107, 101, 102), "joining", "not connected"),
        ((106, 107, 101, 100), "connected", "itself"),
        ((106, 107, 101, 101), "connected", "twice"),
        ((106, 107, 101, 102, 104), "connected", "at most 4"),
        ((106, 107, 101, 999), "connected", "departed peer"),
        ((106, 107, 101, 104), "connected", "has none to it"),
        ((106, 107, 101), "connected", "has none to it"),
    ],
)
def test_what_is_wrong_with_one_peer(neighbours, state, complaint):
    assert complaint in str(find_convergence_problems(with_neighbors(ring(8), 100, neighbours, state), 4))


def test_a_hole_on_both_sides():
    views = with_neighbors(ring(8), 100, (106, 107, 101))
    views = with_neighbors(views, 102, (101, 103, 104))
    assert "2 free slots" in str(find_convergence_problems(views, 4))


def test_two_peers_with_one_id():
    views = ring(8)
    assert "same id" in str(find_convergence_problems(views | {7: views[100]}, 4))


def test_two_fabrics():
    views = ring(6) | ring(8, first=200)
    assert "2 components" in str(find_convergence_problems(views, 4))
    assert "2 components" in str(check_connected(views))


# -- what is owed

ADA, BOB = 0xADA, 0xB0B
LONG_AFTER_NS = 10 * STABLE_PERIOD_NS


def test_all_of_the_living_and_of_the_dead_what_somebody_has():
    living = {ADA: AuthorHead(9, 90)}
    gone = {BOB: DepartedPeer(left_gracefully=False, at_ns=50)}
    assert expected_deliveries(living, gone, {BOB: AuthorHead(4, 40)}, [50]) == {
        ADA: AuthorHead(9, 90),
        BOB: AuthorHead(4, 40),
    }
    assert expected_deliveries(living, gone, {}, [50]) == living


def test_all_of_one_that_left_in_peace():
    gone = {BOB: DepartedPeer(left_gracefully=True, at_ns=LONG_AFTER_NS + 5, sent_count=7, last_sent_ns=LONG_AFTER_NS)}
    assert expected_deliveries({}, gone, {BOB: AuthorHead(4, 40)}, []) == {BOB: AuthorHead(7, LONG_AFTER_NS)}
    assert expected_deliveries({}, gone, {}, [1]) == {BOB: AuthorHead(7, LONG_AFTER_NS)}


@pytest.mark.parametrize("death_ns", [LONG_AFTER_NS - STABLE_PERIOD_NS + 1, LONG_AFTER_NS, LONG_AFTER_NS + 4])
def test_less_if_others_died_about_then(death_ns):
    gone = {BOB: DepartedPeer(left_gracefully=True, at_ns=LONG_AFTER_NS + 5, sent_count=7, last_sent_ns=LONG_AFTER_NS)}
    assert expected_deliveries({}, gone, {BOB: AuthorHead(4, 40)}, [death_ns]) == {BOB: AuthorHead(4, 40)}


# -- what was told as missed


def test_missed_for_good_is_no_fault():
    assert find_false_missed([(3, ADA, 4, 6)], {}, {ADA: AuthorHead(9, 90)}) == []


def test_missed_although_somebody_has_it():
    (text,) = find_false_missed([(3, ADA, 4, 6)], {(ADA, 4, 6): 5}, {ADA: AuthorHead(9, 90)})
    assert "peer 3" in text
    assert "#5" in text


def test_missed_although_nobody_sent_it():
    (text,) = find_false_missed([(3, ADA, 4, 10)], {}, {ADA: AuthorHead(9, 90)})
    assert "nobody sent" in text
