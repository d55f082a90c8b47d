"""The promises between peers: each check is seen to fire on bad data, and to be silent on good."""

import pytest

from weft.trial.audit import PEACE_NS, Gone, View, apart, owed, regretted, unrest
from weft.trial.ledger import Head


def ring(count: int, *, first: int = 100) -> dict[int, View]:
    """Every peer is linked to the two before and the two behind it: regular, of degree 4."""
    ids = [first + number for number in range(count)]
    return {
        first + number: View(
            ids[number], "connected", tuple(ids[(number + step) % count] for step in (-2, -1, 1, 2)), 0
        )
        for number in range(count)
    }


def with_neighbours(views: dict[int, View], number: int, neighbours: tuple[int, ...], state: str = "connected"):
    return views | {number: View(views[number].peer, state, neighbours)}


def test_regular_and_whole():
    assert unrest(ring(8), 4) is None
    assert apart(ring(8)) is None


def test_small_ones_are_linked_to_all():
    full = {each: View(each, "connected", tuple(other for other in (1, 2, 3) if other != each)) for each in (1, 2, 3)}
    assert unrest(full, 4) is None
    assert "holes" in str(unrest(with_neighbours(with_neighbours(full, 1, (2,)), 3, (2,)), 4))


@pytest.mark.parametrize(
    ("neighbours", "state", "complaint"),
    [
        ((106, 107, 101, 102), "partial", "not connected"),
        ((106, 107, 101, 100), "connected", "itself"),
        ((106, 107, 101, 101), "connected", "twice"),
        ((106, 107, 101, 102, 104), "connected", "at most 4"),
        ((106, 107, 101, 999), "connected", "one that is gone"),
        ((106, 107, 101, 104), "connected", "has none to it"),
        ((106, 107, 101), "connected", "has none to it"),
    ],
)
def test_what_is_wrong_with_one_peer(neighbours, state, complaint):
    assert complaint in str(unrest(with_neighbours(ring(8), 100, neighbours, state), 4))


def test_a_hole_on_both_sides():
    views = with_neighbours(ring(8), 100, (106, 107, 101))
    views = with_neighbours(views, 102, (101, 103, 104))
    assert "2 holes" in str(unrest(views, 4))


def test_two_peers_with_one_id():
    views = ring(8)
    assert "same id" in str(unrest(views | {7: views[100]}, 4))


def test_two_fabrics():
    views = ring(6) | ring(8, first=200)
    assert "separate parts" in str(unrest(views, 4))
    assert "cannot be reached" in str(apart(views))


# -- what is owed

ADA, BOB = 0xADA, 0xB0B
LATE_NS = 10 * PEACE_NS


def test_all_of_the_living_and_of_the_dead_what_somebody_has():
    living = {ADA: Head(9, 90)}
    gone = {BOB: Gone(in_good_order=False, at_ns=50)}
    assert owed(living, gone, {BOB: Head(4, 40)}, [50]) == {ADA: Head(9, 90), BOB: Head(4, 40)}
    assert owed(living, gone, {}, [50]) == living


def test_all_of_one_that_left_in_peace():
    gone = {BOB: Gone(in_good_order=True, at_ns=LATE_NS + 5, sent=7, sent_ns=LATE_NS)}
    assert owed({}, gone, {BOB: Head(4, 40)}, []) == {BOB: Head(7, LATE_NS)}
    assert owed({}, gone, {}, [1]) == {BOB: Head(7, LATE_NS)}


@pytest.mark.parametrize("death_ns", [LATE_NS - PEACE_NS + 1, LATE_NS, LATE_NS + 4])
def test_less_if_others_died_about_then(death_ns):
    gone = {BOB: Gone(in_good_order=True, at_ns=LATE_NS + 5, sent=7, sent_ns=LATE_NS)}
    assert owed({}, gone, {BOB: Head(4, 40)}, [death_ns]) == {BOB: Head(4, 40)}


# -- what was told as missed


def test_missed_for_good_is_no_fault():
    assert regretted([(3, ADA, 4, 6)], {}, {ADA: Head(9, 90)}) == []


def test_missed_although_somebody_has_it():
    (text,) = regretted([(3, ADA, 4, 6)], {(ADA, 4, 6): 5}, {ADA: Head(9, 90)})
    assert "peer 3" in text
    assert "#5" in text


def test_missed_although_nobody_sent_it():
    (text,) = regretted([(3, ADA, 4, 10)], {}, {ADA: Head(9, 90)})
    assert "nobody sent" in text
