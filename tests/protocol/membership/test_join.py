"""A newcomer is connected with its first link; the walks that were started for it fill its other slots."""

from broadloom.protocol import Peer, PeerState
from broadloom.protocol.events import LinkDownReason
from broadloom.wire.exchange_messages import (
    DiscoverRequest,
    EdgeOffer,
    EdgeOfferResponse,
    EdgeOfferResult,
    JoinRequest,
    JoinResponse,
)
from broadloom.wire.link_messages import RandomWalk, SlotSearch
from tests.protocol.fake_runtime import (
    EMPTY_DIGEST,
    NO_TIMEOUT,
    FakeConnection,
    FakeRuntime,
    hello,
    link,
    open_exchange,
    peer_info,
    seeker,
)

JOIN_REQUEST = JoinRequest(NO_TIMEOUT.degree, ())


def newcomer(runtime: FakeRuntime) -> tuple[Peer, FakeConnection]:
    """A peer that has accepted its first edge: linked to 2, and 3 is about to dial."""
    peer = seeker(runtime)
    offer = EdgeOffer(1, peer_info(3), False, (), (), False)
    connection = open_exchange(peer, hello(2), offer)
    assert connection.sent_messages(EdgeOfferResponse) == [EdgeOfferResponse(EdgeOfferResult.ACCEPTED)]
    assert peer.state is PeerState.DISCOVERING, "without a digest there is no starting position"
    connection.remote_sends(EMPTY_DIGEST)
    return peer, connection


def test_newcomer_is_connected_with_its_first_link() -> None:
    peer, _ = newcomer(FakeRuntime())
    assert peer.state is PeerState.CONNECTED
    assert peer.is_filling_slots
    assert len(peer.links) == 1


def test_newcomer_admits_others_without_giving_away_its_slots() -> None:
    peer, neighbor = newcomer(FakeRuntime())
    other = open_exchange(peer, hello(7, has_position=False), DiscoverRequest(False, 0, ()), JOIN_REQUEST)
    assert [response.is_linked for response in other.sent_messages(JoinResponse)] == [False]
    assert len(neighbor.sent_messages(RandomWalk)) == NO_TIMEOUT.degree // 2
    assert 7 not in peer.links


def test_newcomer_leaves_its_slots_to_the_walks_that_were_started_for_it() -> None:
    runtime = FakeRuntime()
    peer, neighbor = newcomer(runtime)
    dialed = len(runtime.dialed)
    neighbor.remote_sends(SlotSearch(9, 1, 1, peer_info(9)))
    neighbor.remote_sends(RandomWalk(5, peer_info(8), None, (), (), True, 0, 0))
    assert len(runtime.dialed) == dialed
    second = open_exchange(peer, hello(4), EdgeOffer(2, peer_info(5), False, (), (), False))
    assert second.sent_messages(EdgeOfferResponse) == [EdgeOfferResponse(EdgeOfferResult.ACCEPTED)]
    link(peer, 3)
    link(peer, 5)
    assert sorted(peer.links.neighbors) == [2, 3, 4, 5]
    assert not peer.is_filling_slots


def test_newcomer_gives_its_slots_away_when_the_walks_have_found_nothing() -> None:
    runtime = FakeRuntime()
    peer, _ = newcomer(runtime)
    runtime.advance(NO_TIMEOUT.join_timeout_s)
    assert not peer.is_filling_slots
    other = open_exchange(peer, hello(7, has_position=False), JOIN_REQUEST)
    assert [response.is_linked for response in other.sent_messages(JoinResponse)] == [True]


def test_newcomer_that_loses_its_only_neighbor_looks_for_another_at_once() -> None:
    runtime = FakeRuntime()
    peer, neighbor = newcomer(runtime)
    peer.links.clear_reservations()
    peer.peer_cache.add(peer_info(6))
    link_to_neighbor = peer.links.get(2)
    assert link_to_neighbor is not None
    link_to_neighbor.close(LinkDownReason.CONNECTION_LOST)
    assert neighbor.closed
    assert peer.state is PeerState.CONNECTED
    runtime.advance(2 * NO_TIMEOUT.repair_delay_s)
    assert peer_info(6).address in [connection.address for connection in runtime.dialed]
