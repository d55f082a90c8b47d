"""One neighbour or stranger that does not keep to the protocol harms only itself."""

import pytest

from broadloom.protocol import PeerState, Tuning
from broadloom.wire.link_messages import Beacon, Heartbeat, LastKnown, Want
from broadloom.wire.types import AuthorState
from tests.protocol.fake_runtime import FakeRuntime, broadcast_of, digest, digest_of, founder, link, peer_info, seeker

A, B = 71, 72
LARGEST = (1 << 64) - 1


@pytest.mark.parametrize(
    "have",
    [
        AuthorState(A, 1, 5, LARGEST),
        AuthorState(99, 1, 5, LARGEST),
        AuthorState(A, 0, LARGEST, 0),
        AuthorState(A, LARGEST, LARGEST, LARGEST),
    ],
)
def test_absurd_hearsay_stops_nothing(have: AuthorState) -> None:
    world = FakeRuntime()
    peer = founder(world)
    liar, honest = link(peer, 2), link(peer, 3)
    honest.remote_sends(broadcast_of(A, 1))
    liar.remote_sends(LastKnown((have,)))
    world.advance(3)
    honest.remote_sends(broadcast_of(B, 1), broadcast_of(B, 3))  # a real gap is still asked for
    world.advance(3)
    assert any(want.author == B for line in (liar, honest) for want in line.sent_messages(Want))
    honest.remote_sends(broadcast_of(B, 2))
    assert world.delivered_ids() == [(A, 1), (B, 1), (B, 2), (B, 3)]
    assert link(peer, 4).sent_messages(type(digest()))  # a newcomer is still greeted


def test_an_author_is_not_muted_by_a_tale_of_what_it_said() -> None:
    world = FakeRuntime()
    peer = founder(world)
    liar, honest = link(peer, 2), link(peer, 3)
    honest.remote_sends(broadcast_of(A, 1))
    liar.remote_sends(LastKnown((AuthorState(A, 1, LARGEST, 10**9),)))
    world.advance(3)
    honest.remote_sends(broadcast_of(A, 2))
    assert world.delivered_ids() == [(A, 1), (A, 2)]
    assert world.reported_missed == []
    assert peer.counters.claims_rejected == 1


def test_many_invented_authors_do_not_start_a_storm_of_questions() -> None:
    world = FakeRuntime()
    liar = link(founder(world), 2)
    liar.remote_sends(LastKnown(tuple(AuthorState(1000 + name, 1, 9, 0) for name in range(5000))))
    world.advance(10)
    assert len(liar.sent_messages(Want)) <= 64 * 10 / 0.5


def test_messages_that_wait_are_bounded() -> None:
    world = FakeRuntime()
    peer = founder(world, Tuning(reorder_buffer_bytes_max=100_000))
    line, other = link(peer, 2), link(peer, 3)
    for sequence in range(2, 40):
        line.remote_sends(broadcast_of(A, sequence)._replace(messages=(bytes(10_000),)))
    assert len(other.broadcast_ids()) <= 10
    assert peer.counters.reorder_buffer_full > 20
    line.remote_sends(broadcast_of(A, 1))
    assert world.delivered_ids()[:2] == [(A, 1), (A, 2)]


def test_floods_end_even_if_nobody_remembers_them() -> None:
    world = FakeRuntime()
    peer = founder(world)
    line, other = link(peer, 2), link(peer, 3)
    line.remote_sends(Beacon(5, 1, 1000))
    assert other.sent_messages(Beacon) == []
    line.remote_sends(Beacon(peer.me.peer_id, 1, 1))  # in our own name
    assert other.sent_messages(Beacon) == []
    line.remote_sends(Beacon(5, 2, 1))
    assert [each.hops for each in other.sent_messages(Beacon)] == [2]


def test_a_neighbour_that_never_greets_is_given_up() -> None:
    world = FakeRuntime()
    peer = seeker(world, Tuning())
    line = link(peer, 2, None)
    for _ in range(20):
        world.advance(1)
        line.remote_sends(Heartbeat())
    assert 2 not in peer.links
    link(peer, 3, digest_of())
    world.advance(3)
    assert peer.state is PeerState.CONNECTED


def test_a_starting_point_cannot_give_us_other_numbers() -> None:
    world = FakeRuntime()
    peer = seeker(world)
    link(peer, 2, digest_of((peer.me.peer_id, 1, 1000)))
    world.advance(3)
    assert peer.broadcast(b"first") == 1


def test_one_greeting_brings_a_part_of_the_cache_at_most() -> None:
    peer = founder(FakeRuntime())
    for name in range(1000, 1128):
        peer.peer_cache.add(peer_info(name))
    link(peer, 2, digest(peer_sample=tuple(peer_info(name) for name in range(2000, 2200))))
    assert sum(each.peer_id < 2000 for each in peer.peer_cache.sample(128)) >= 100
