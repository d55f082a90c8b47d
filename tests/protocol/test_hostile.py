"""A peer that violates the protocol harms only itself."""

import pytest

from broadloom.protocol import PeerState, Tuning
from broadloom.wire.link_messages import Beacon, Heartbeat, LastKnown, Want
from broadloom.wire.types import AuthorState
from tests.protocol.fake_runtime import FakeRuntime, broadcast_of, creator, digest, digest_of, link, peer_info, seeker

A, B = 71, 72
LARGEST = (1 << 64) - 1


@pytest.mark.parametrize(
    "claim",
    [
        AuthorState(A, 1, 5, LARGEST),
        AuthorState(99, 1, 5, LARGEST),
        AuthorState(A, 0, LARGEST, 0),
        AuthorState(A, LARGEST, LARGEST, LARGEST),
    ],
)
def test_implausible_claim_does_not_stop_delivery(claim: AuthorState) -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    liar, honest = link(peer, 2), link(peer, 3)
    honest.remote_sends(broadcast_of(A, 1))
    liar.remote_sends(LastKnown((claim,)))
    runtime.advance(3)
    honest.remote_sends(broadcast_of(B, 1), broadcast_of(B, 3))  # a real gap is still requested
    runtime.advance(3)
    assert any(want.author == B for connection in (liar, honest) for want in connection.sent_messages(Want))
    honest.remote_sends(broadcast_of(B, 2))
    assert runtime.delivered_ids() == [(A, 1), (B, 1), (B, 2), (B, 3)]
    assert link(peer, 4).sent_messages(type(digest()))  # a newcomer still gets a digest


def test_author_is_delivered_after_implausible_claim() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    liar, honest = link(peer, 2), link(peer, 3)
    honest.remote_sends(broadcast_of(A, 1))
    liar.remote_sends(LastKnown((AuthorState(A, 1, LARGEST, 10**9),)))
    runtime.advance(3)
    honest.remote_sends(broadcast_of(A, 2))
    assert runtime.delivered_ids() == [(A, 1), (A, 2)]
    assert runtime.reported_missed == []
    assert peer.counters.claims_rejected == 1


def test_claims_about_invented_authors_cause_bounded_wants() -> None:
    runtime = FakeRuntime()
    liar = link(creator(runtime), 2)
    liar.remote_sends(LastKnown(tuple(AuthorState(1000 + peer_id, 1, 9, 0) for peer_id in range(5000))))
    runtime.advance(10)
    assert len(liar.sent_messages(Want)) <= 64 * 10 / 0.5


def test_reorder_buffer_is_bounded() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, Tuning(reorder_buffer_bytes_max=100_000))
    connection, other = link(peer, 2), link(peer, 3)
    for sequence in range(2, 40):
        connection.remote_sends(broadcast_of(A, sequence)._replace(messages=(bytes(10_000),)))
    assert len(other.broadcast_ids()) <= 10
    assert peer.counters.reorder_buffer_full > 20
    connection.remote_sends(broadcast_of(A, 1))
    assert runtime.delivered_ids()[:2] == [(A, 1), (A, 2)]


def test_flood_ends_when_hops_exceed_limit() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connection, other = link(peer, 2), link(peer, 3)
    connection.remote_sends(Beacon(5, 1, 1000))
    assert other.sent_messages(Beacon) == []
    connection.remote_sends(Beacon(peer.me.peer_id, 1, 1))  # with our own id
    assert other.sent_messages(Beacon) == []
    connection.remote_sends(Beacon(5, 2, 1))
    assert [each.hops for each in other.sent_messages(Beacon)] == [2]


def test_neighbor_without_digest_is_dropped() -> None:
    runtime = FakeRuntime()
    peer = seeker(runtime, Tuning())
    connection = link(peer, 2, None)
    for _ in range(20):
        runtime.advance(1)
        connection.remote_sends(Heartbeat())
    assert 2 not in peer.links
    link(peer, 3, digest_of())
    runtime.advance(3)
    assert peer.state is PeerState.CONNECTED


def test_adopted_position_does_not_change_own_sequence() -> None:
    runtime = FakeRuntime()
    peer = seeker(runtime)
    link(peer, 2, digest_of((peer.me.peer_id, 1, 1000)))
    runtime.advance(3)
    assert peer.broadcast(b"first") == 1


def test_digest_replaces_only_part_of_the_peer_cache() -> None:
    peer = creator(FakeRuntime())
    for peer_id in range(1000, 1128):
        peer.peer_cache.add(peer_info(peer_id))
    link(peer, 2, digest(peer_sample=tuple(peer_info(peer_id) for peer_id in range(2000, 2200))))
    assert sum(each.peer_id < 2000 for each in peer.peer_cache.sample(128)) >= 100
