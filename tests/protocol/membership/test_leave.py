"""Leaving: who pairs with whom, what a leaver says, and what its neighbours do about it."""

from itertools import combinations

import pytest

from broadloom.protocol import PeerState
from broadloom.protocol.membership.leave import pairings
from broadloom.wire import Broadcast
from broadloom.wire.exchange_messages import LinkRequest
from broadloom.wire.link_messages import Leave, UnlinkAck
from tests.protocol.fake_runtime import ME, NO_TIMEOUT, FakeRuntime, founder, link, peer_info

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
    peer = founder(FakeRuntime())
    lines = [link(peer, name) for name in (2, 3, 4)]
    peer.leave()
    for line in lines:
        assert line.sent_messages(Leave) == [Leave((peer_info(2), peer_info(3), peer_info(4)))]
        assert peer.state is PeerState.LEAVING
        line.remote_sends(UnlinkAck())
    assert peer.state is PeerState.LEFT
    assert all(line.closed for line in lines)


def test_a_leaver_passes_on_what_it_hears_until_then() -> None:
    # The author may leave at the same moment, and this leaver be the only one that heard its last word.
    peer = founder(FakeRuntime())
    lines = [link(peer, name) for name in (2, 3)]
    peer.leave()
    lines[0].remote_sends(Broadcast(71, 1, 1, (b"farewell",)))
    assert lines[1].broadcast_ids() == [(71, 1)]


def test_a_leaver_does_not_wait_for_ever() -> None:
    world = FakeRuntime()
    peer = founder(world)
    line = link(peer, 2)
    peer.leave()
    world.advance(NO_TIMEOUT.unlink_timeout_s - 0.1)
    assert not line.closed
    world.advance(0.2)
    assert line.closed
    assert peer.state is PeerState.LEFT


def test_one_without_neighbours_is_gone_at_once() -> None:
    peer = founder(FakeRuntime())
    peer.leave()
    assert peer.state is PeerState.LEFT


# A neighbour leaves.


def test_the_lower_place_calls_the_higher_one() -> None:
    world = FakeRuntime()
    peer = founder(world)
    link(peer, 2).remote_sends(Leave((peer_info(ME), peer_info(5), peer_info(6))))
    assert [dialled.address for dialled in world.dialed] == [peer_info(5).address]
    world.dialed[0].remote_accepts()
    assert world.dialed[0].sent_messages(LinkRequest) == [LinkRequest()]


def test_the_higher_place_waits_and_keeps_a_place() -> None:
    world = FakeRuntime()
    peer = founder(world)
    link(peer, 2).remote_sends(Leave((peer_info(5), peer_info(ME), peer_info(6))))
    assert world.dialed == []
    assert peer.links.is_reserved(5)


def test_one_that_is_a_neighbour_already_is_passed_over() -> None:
    world = FakeRuntime()
    peer = founder(world)
    leaver = link(peer, 2)
    link(peer, 5)
    leaver.remote_sends(Leave((peer_info(ME), peer_info(5), peer_info(6), peer_info(7))))
    assert [dialled.address for dialled in world.dialed] in ([peer_info(6).address], [peer_info(7).address])


def test_a_leaver_is_listened_to_for_a_moment_and_then_let_go() -> None:
    world = FakeRuntime()
    peer = founder(world)
    line = link(peer, 2)
    line.remote_sends(Leave((peer_info(ME),)))
    assert (peer.links.neighbors, line.sent_messages(UnlinkAck), line.closed) == ((), [], False)
    line.remote_sends(Broadcast(71, 1, 1, (b"farewell",)))
    assert world.delivered_ids() == [(71, 1)]
    world.advance(NO_TIMEOUT.leave_linger_s)
    assert (line.sent_messages(UnlinkAck), line.closed) == ([UnlinkAck()], True)


def test_two_neighbours_that_leave_at_once_do_not_wait_for_each_other() -> None:
    peer = founder(FakeRuntime())
    line = link(peer, 2)
    peer.leave()
    line.remote_sends(Leave((peer_info(ME),)))
    assert (line.sent_messages(UnlinkAck), line.closed) == ([UnlinkAck()], True)
    assert peer.state is PeerState.LEFT


def test_a_leaver_is_not_called_any_more() -> None:
    peer = founder(FakeRuntime())
    line = link(peer, 2)
    assert 2 in peer.peer_cache
    line.remote_sends(Leave((peer_info(ME),)))
    assert 2 not in peer.peer_cache
