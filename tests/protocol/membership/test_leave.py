"""Leaving: how neighbors pair up, and what both sides send."""

from itertools import combinations

import pytest

from broadloom.protocol import PeerState
from broadloom.protocol.membership.leave import pairings
from broadloom.wire import Broadcast
from broadloom.wire.exchange_messages import LinkRequest
from broadloom.wire.link_messages import Heartbeat, Leave, UnlinkAck
from tests.protocol.fake_runtime import ME, NO_TIMEOUT, FakeRuntime, creator, link, peer_info

every_count = pytest.mark.parametrize("count", range(13))


@every_count
def test_pairings_use_each_index_once_per_round(count: int) -> None:
    for pairs in pairings(count):
        paired = [index for pair in pairs for index in pair]
        assert len(set(paired)) == len(paired) == 2 * (count // 2)
        assert set(paired) <= set(range(count))
        assert all(low < high for low, high in pairs)


@every_count
def test_pairings_contain_every_pair_once(count: int) -> None:
    pairs_seen = [pair for pairs in pairings(count) for pair in pairs]
    assert sorted(pairs_seen) == list(combinations(range(count), 2))


@pytest.mark.parametrize("count", range(2, 13))
def test_first_pairing_pairs_adjacent_indices(count: int) -> None:
    assert next(pairings(count)) == [(low, low + 1) for low in range(0, count - 1, 2)]


# This peer leaves.


def test_leaving_peer_has_left_when_last_neighbor_acknowledges() -> None:
    peer = creator(FakeRuntime())
    connections = [link(peer, peer_id) for peer_id in (2, 3, 4)]
    peer.leave()
    for connection in connections:
        assert connection.sent_messages(Leave) == [Leave((peer_info(2), peer_info(3), peer_info(4)))]
        assert peer.state is PeerState.LEAVING
        connection.remote_sends(UnlinkAck())
    assert peer.state is PeerState.LEFT
    assert all(connection.closed for connection in connections)


def test_leaving_peer_relays_messages() -> None:
    # The author may leave at the same moment, and this peer may be the only one that received its last message.
    peer = creator(FakeRuntime())
    connections = [link(peer, peer_id) for peer_id in (2, 3)]
    peer.leave()
    connections[0].remote_sends(Broadcast(71, 1, 1, (b"farewell",)))
    assert connections[1].broadcast_ids() == [(71, 1)]


def test_leaving_peer_closes_links_after_timeout() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connection = link(peer, 2)
    peer.leave()
    runtime.advance(NO_TIMEOUT.unlink_timeout_s - 0.1)
    assert not connection.closed
    runtime.advance(2 * NO_TIMEOUT.tick_s)
    assert connection.closed
    assert (peer.state, peer.leave_protocol.unanswered) == (PeerState.LEFT, 1)


def test_leaving_peer_waits_for_a_slow_neighbor_that_is_alive() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    slow, dead = link(peer, 2), link(peer, 3)
    peer.leave()
    while runtime.time < NO_TIMEOUT.leave_timeout_s - 1:
        runtime.advance(NO_TIMEOUT.heartbeat_s)
        slow.remote_sends(Heartbeat())
    assert (dead.closed, slow.closed) == (True, False)
    slow.remote_sends(UnlinkAck())
    assert (peer.state, peer.leave_protocol.unanswered) == (PeerState.LEFT, 1)


def test_leaving_peer_does_not_wait_forever_for_a_neighbor_that_is_alive() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    slow = link(peer, 2)
    peer.leave()
    while peer.state is not PeerState.LEFT and runtime.time < 2 * NO_TIMEOUT.leave_timeout_s:
        runtime.advance(NO_TIMEOUT.heartbeat_s)
        slow.remote_sends(Heartbeat())
    assert NO_TIMEOUT.leave_timeout_s <= runtime.time < NO_TIMEOUT.leave_timeout_s + 3 * NO_TIMEOUT.tick_s
    assert peer.leave_protocol.unanswered == 1


def test_peer_without_neighbors_leaves_at_once() -> None:
    peer = creator(FakeRuntime())
    peer.leave()
    assert peer.state is PeerState.LEFT


# A neighbor leaves.


def test_lower_index_of_a_pair_requests_a_link() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    link(peer, 2).remote_sends(Leave((peer_info(ME), peer_info(5), peer_info(6))))
    assert [dialed.address for dialed in runtime.dialed] == [peer_info(5).address]
    runtime.dialed[0].remote_accepts()
    assert runtime.dialed[0].sent_messages(LinkRequest) == [LinkRequest()]


def test_higher_index_of_a_pair_reserves_a_slot() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    link(peer, 2).remote_sends(Leave((peer_info(5), peer_info(ME), peer_info(6))))
    assert runtime.dialed == []
    assert peer.links.is_reserved(5)


def test_pairing_skips_existing_neighbors() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    leaver = link(peer, 2)
    link(peer, 5)
    leaver.remote_sends(Leave((peer_info(ME), peer_info(5), peer_info(6), peer_info(7))))
    assert [dialed.address for dialed in runtime.dialed] in ([peer_info(6).address], [peer_info(7).address])


def test_link_to_leaving_neighbor_lingers_before_ack() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connection = link(peer, 2)
    connection.remote_sends(Leave((peer_info(ME),)))
    assert (peer.links.neighbors, connection.sent_messages(UnlinkAck), connection.closed) == ((), [], False)
    connection.remote_sends(Broadcast(71, 1, 1, (b"farewell",)))
    assert runtime.delivered_ids() == [(71, 1)]
    runtime.advance(NO_TIMEOUT.leave_linger_s)
    assert (connection.sent_messages(UnlinkAck), connection.closed) == ([UnlinkAck()], True)


def test_two_leaving_neighbors_acknowledge_at_once() -> None:
    peer = creator(FakeRuntime())
    connection = link(peer, 2)
    peer.leave()
    connection.remote_sends(Leave((peer_info(ME),)))
    assert (connection.sent_messages(UnlinkAck), connection.closed) == ([UnlinkAck()], True)
    assert peer.state is PeerState.LEFT


def test_leaving_neighbor_is_removed_from_peer_cache() -> None:
    peer = creator(FakeRuntime())
    connection = link(peer, 2)
    assert 2 in peer.peer_cache
    connection.remote_sends(Leave((peer_info(ME),)))
    assert 2 not in peer.peer_cache
