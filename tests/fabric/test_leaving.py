"""Leaving: who pairs with whom, what a leaver says, and what its neighbours do about it."""

from itertools import combinations

import pytest

from tests.fabric.fake_world import ME, PATIENT, FakeWorld, contact, founder, link
from weft.fabric import State
from weft.fabric.leaving import pairings
from weft.wire import Broadcast
from weft.wire.calls import PortRequest
from weft.wire.links import CutDone, Leave

every_count = pytest.mark.parametrize("count", range(13))


@every_count
def test_in_each_round_nobody_is_paired_twice(count: int) -> None:
    for pairs in pairings(count):
        paired = [place for pair in pairs for place in pair]
        assert len(set(paired)) == len(paired) == 2 * (count // 2)
        assert set(paired) <= set(range(count))
        assert all(low < high for low, high in pairs)


@every_count
def test_over_all_rounds_everyone_meets_everyone_once(count: int) -> None:
    met = [pair for pairs in pairings(count) for pair in pairs]
    assert sorted(met) == list(combinations(range(count), 2))


@pytest.mark.parametrize("count", range(2, 13))
def test_first_pairs_with_second_and_third_with_fourth(count: int) -> None:
    assert next(pairings(count)) == [(low, low + 1) for low in range(0, count - 1, 2)]


# We leave.


def test_a_leaver_tells_all_neighbours_and_goes_when_the_last_has_hung_up() -> None:
    peer = founder(FakeWorld())
    lines = [link(peer, name) for name in (2, 3, 4)]
    peer.leave()
    for line in lines:
        assert line.heard(Leave) == [Leave((contact(2), contact(3), contact(4)))]
        assert peer.state is State.LEAVING
        line.says(CutDone())
    assert peer.state is State.LEFT
    assert all(line.closed for line in lines)


def test_a_leaver_passes_on_what_it_hears_until_then() -> None:
    # The author may leave at the same moment, and this leaver be the only one that heard its last word.
    peer = founder(FakeWorld())
    lines = [link(peer, name) for name in (2, 3)]
    peer.leave()
    lines[0].says(Broadcast(71, 1, 1, (b"farewell",)))
    assert lines[1].names() == [(71, 1)]


def test_a_leaver_does_not_wait_for_ever() -> None:
    world = FakeWorld()
    peer = founder(world)
    line = link(peer, 2)
    peer.leave()
    world.run(PATIENT.drain_s - 0.1)
    assert not line.closed
    world.run(0.2)
    assert line.closed
    assert peer.state is State.LEFT


def test_one_without_neighbours_is_gone_at_once() -> None:
    peer = founder(FakeWorld())
    peer.leave()
    assert peer.state is State.LEFT


# A neighbour leaves.


def test_the_lower_place_calls_the_higher_one() -> None:
    world = FakeWorld()
    peer = founder(world)
    link(peer, 2).says(Leave((contact(ME), contact(5), contact(6))))
    assert [dialled.address for dialled in world.dialled] == [contact(5).address]
    world.dialled[0].opens()
    assert world.dialled[0].heard(PortRequest) == [PortRequest()]


def test_the_higher_place_waits_and_keeps_a_place() -> None:
    world = FakeWorld()
    peer = founder(world)
    link(peer, 2).says(Leave((contact(5), contact(ME), contact(6))))
    assert world.dialled == []
    assert peer.links.claimed(5)


def test_one_that_is_a_neighbour_already_is_passed_over() -> None:
    world = FakeWorld()
    peer = founder(world)
    leaver = link(peer, 2)
    link(peer, 5)
    leaver.says(Leave((contact(ME), contact(5), contact(6), contact(7))))
    assert [dialled.address for dialled in world.dialled] in ([contact(6).address], [contact(7).address])


def test_a_leaver_is_listened_to_for_a_moment_and_then_let_go() -> None:
    world = FakeWorld()
    peer = founder(world)
    line = link(peer, 2)
    line.says(Leave((contact(ME),)))
    assert (peer.links.neighbours, line.heard(CutDone), line.closed) == ((), [], False)
    line.says(Broadcast(71, 1, 1, (b"farewell",)))
    assert world.names() == [(71, 1)]
    world.run(PATIENT.linger_s)
    assert (line.heard(CutDone), line.closed) == ([CutDone()], True)


def test_two_neighbours_that_leave_at_once_do_not_wait_for_each_other() -> None:
    peer = founder(FakeWorld())
    line = link(peer, 2)
    peer.leave()
    line.says(Leave((contact(ME),)))
    assert (line.heard(CutDone), line.closed) == ([CutDone()], True)
    assert peer.state is State.LEFT


def test_a_leaver_is_not_called_any_more() -> None:
    peer = founder(FakeWorld())
    line = link(peer, 2)
    assert 2 in peer.contacts
    line.says(Leave((contact(ME),)))
    assert 2 not in peer.contacts
