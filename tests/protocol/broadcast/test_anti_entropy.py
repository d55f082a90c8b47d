"""Anti-entropy: where a joiner starts, and which messages two new neighbors send each other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.protocol import Peer, PeerState, Tuning
from broadloom.protocol.events import Missed
from broadloom.wire.exchange_messages import LinkRequest
from broadloom.wire.fields import AUTHORS_MAX
from broadloom.wire.link_messages import Digest, LastKnown, Want
from broadloom.wire.types import AuthorState
from tests.protocol.broadcast.harness import HELD, SHORT_RETENTION, A, B, holder
from tests.protocol.fake_runtime import (
    EMPTY_DIGEST,
    NO_TIMEOUT,
    Cable,
    FakeConnection,
    FakeRuntime,
    broadcast_of,
    creator,
    digest,
    digest_of,
    hello,
    link,
    open_exchange,
    peer_info,
    seeker,
)

NEW_DIGEST = digest(is_new=True)
LONG_S = 100.0


def digest_on(connection: FakeConnection) -> Digest:
    (sent,) = connection.sent_messages(Digest)
    return sent


# Joining.


def test_joiner_sends_digest_marked_as_new() -> None:
    sent = digest_on(link(seeker(FakeRuntime()), 2, None))
    assert (sent.is_new, sent.authors) == (True, ())


def test_creator_sends_digest_not_marked_as_new() -> None:
    sent = digest_on(link(creator(FakeRuntime()), 2))
    assert (sent.is_new, sent.authors) == (False, ())


def test_joiner_adopts_position_of_first_neighbor() -> None:
    runtime = FakeRuntime()
    peer = seeker(runtime)
    connection = link(peer, 2, None)
    connection.remote_sends(digest_of((A, 1, 5), (B, 7, 6)))
    assert peer.state is PeerState.CONNECTED
    connection.remote_sends(broadcast_of(A, 6), broadcast_of(B, 7, 7), broadcast_of(A, 4), broadcast_of(A, 7))
    assert runtime.delivered_ids() == [(A, 6), (B, 7), (A, 7)]
    runtime.advance(2 * NO_TIMEOUT.retention_s)
    assert (runtime.reported_missed, connection.sent_messages(Want)) == ([], [])


def test_joiner_includes_adopted_position_in_its_digest() -> None:
    runtime = FakeRuntime()
    peer = seeker(runtime)
    link(peer, 2, digest_of((A, 3, 5), idle_ms=2000))
    runtime.advance(1)
    assert digest_on(link(peer, 3)).authors == (AuthorState(A, 3, 5, 3000),)


def test_joiner_waits_for_messages_between_first_and_second_digest() -> None:
    runtime = FakeRuntime()
    peer = seeker(runtime)
    link(peer, 2, digest_of((A, 1, 5)))
    second = link(peer, 3, digest_of((A, 1, 8)))
    peer.on_enough_links()
    second.remote_sends(broadcast_of(A, 9))
    assert runtime.delivered == []
    second.remote_sends(broadcast_of(A, 6), broadcast_of(A, 7), broadcast_of(A, 8))
    assert runtime.delivered_ids() == [(A, 6), (A, 7), (A, 8), (A, 9)]


def test_digest_of_another_joiner_gives_no_position() -> None:
    peer = seeker(FakeRuntime())
    link(peer, 2, NEW_DIGEST)
    assert not peer.broadcaster.has_position
    assert peer.state is PeerState.DISCOVERING


def test_joiner_tracks_at_most_authors_max() -> None:
    peer = seeker(FakeRuntime(), Tuning(heartbeat_timeout_s=1e9, authors_max=3))
    link(peer, 2, digest_of(*((author, 1, 5) for author in range(100, 110))))
    assert len(digest_on(link(peer, 3)).authors) <= 3


@pytest.mark.long
def test_joiner_with_largest_digest_can_send_its_own() -> None:
    runtime = FakeRuntime()
    peer = seeker(runtime)
    link(peer, 2, digest_of(*((author, 1, 5) for author in range(10_000, 10_000 + AUTHORS_MAX))))
    runtime.advance(NO_TIMEOUT.join_timeout_s)
    assert peer.state is PeerState.CONNECTED
    peer.broadcast(b"one author more")
    assert digest_on(link(peer, 3)).authors


# Responding to a digest.


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        (digest_of(), [(A, 1), (B, 1), (A, 2), (A, 3), (B, 2)]),
        (digest_of((A, 1, 1)), [(B, 1), (A, 2), (A, 3), (B, 2)]),
        (digest_of((A, 1, 2), (B, 1, 1)), [(A, 3), (B, 2)]),
        (digest_of((A, 1, 3), (B, 1, 2)), []),
        (digest_of((A, 1, 9), (B, 1, 9)), []),
        (digest_of((A, 3, 2), (B, 1, 2)), [(A, 3)]),
        (NEW_DIGEST, []),
    ],
    ids=["nothing", "one of A", "some of both", "all", "more than this peer", "later stream start", "joiner"],
)
def test_digest_is_answered_with_missing_messages_in_order(theirs: Digest, expected: list[tuple[int, int]]) -> None:
    peer = holder(FakeRuntime(), *HELD)
    connection = link(peer, 3, None)
    assert connection.broadcast_ids() == []
    connection.remote_sends(theirs)
    assert connection.broadcast_ids() == expected


def test_retained_copy_has_more_age_and_one_more_hop() -> None:
    runtime = FakeRuntime()
    peer = holder(runtime, broadcast_of(A, 1)._replace(hops=3, age_ms=100))
    runtime.advance(1.5)
    (copy,) = link(peer, 3).broadcasts()
    assert copy == broadcast_of(A, 1)._replace(hops=4, age_ms=1600)


def test_own_messages_are_sent_to_new_neighbor() -> None:
    peer = creator(FakeRuntime())
    sequence = peer.broadcast(b"e4")
    (copy,) = link(peer, 2).broadcasts()
    assert (copy.author, copy.sequence, copy.hops, copy.messages) == (peer.me.peer_id, sequence, 1, (b"e4",))


def test_message_between_the_two_digests_is_sent_once() -> None:
    peer = holder(FakeRuntime(), broadcast_of(A, 1))
    connection = link(peer, 3, None)
    source = link(peer, 4)
    source.remote_sends(broadcast_of(A, 2))
    assert connection.broadcast_ids() == [(A, 2)]
    connection.remote_sends(EMPTY_DIGEST)
    assert connection.broadcast_ids() == [(A, 2), (A, 1)]


def test_second_digest_causes_no_resend() -> None:
    peer = holder(FakeRuntime(), *HELD)
    connection = link(peer, 3)
    connection.remote_sends(EMPTY_DIGEST)
    assert connection.broadcast_ids() == [(each.author, each.sequence) for each in HELD]


def test_joiner_gets_only_messages_beyond_the_digest() -> None:
    peer = holder(
        FakeRuntime(),
        broadcast_of(A, 1),
        broadcast_of(A, 2),
        broadcast_of(A, 4),
        broadcast_of(B, 1),
        broadcast_of(A, 6),
    )
    connection = link(peer, 3, NEW_DIGEST)
    assert {each.author: each.last_contiguous for each in digest_on(connection).authors} == {A: 2, B: 1}
    assert connection.broadcast_ids() == [(A, 4), (A, 6)]


def test_joiner_loses_nothing_when_gap_closes_before_its_digest() -> None:
    # The digest said 1 while 3 was buffered; then 2 arrived. Both 2 and 3 are still due.
    peer = holder(FakeRuntime(), broadcast_of(A, 1), broadcast_of(A, 3))
    connection = link(peer, 3, None)
    assert digest_on(connection).authors == (AuthorState(A, 1, 1, 0),)
    link(peer, 4).remote_sends(broadcast_of(A, 2))
    connection.remote_sends(NEW_DIGEST)
    assert sorted(connection.broadcast_ids()) == [(A, 2), (A, 3)]


def test_digests_exchange_peer_samples() -> None:
    peer = creator(FakeRuntime())
    link(peer, 2, digest(peer_sample=(peer_info(8), peer_info(9))))
    assert 8 in peer.peer_cache
    assert {each.peer_id for each in digest_on(link(peer, 3)).peer_sample} >= {8, 9}


held = st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 5)), unique=True, max_size=8)


@settings(max_examples=60, deadline=None)
@given(held, held, st.lists(st.integers(0, 1), max_size=30))
def test_two_peers_converge_after_linking(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]], schedule: list[int]
) -> None:
    runtimes = FakeRuntime(1), FakeRuntime(2)
    peers = [creator(runtime, peer_id=name) for runtime, name in zip(runtimes, (1, 2), strict=True)]
    for peer, received in zip(peers, (ours, theirs), strict=True):
        link(peer, 3).remote_sends(*(broadcast_of(*each) for each in received))
    peers[0].join_protocol.request_link(peers[1].me)
    cable = Cable(runtimes[0].dialed[0], peers[1])
    for number in schedule:
        cable.carry(number)
    cable.carry_all()
    union = set(ours) | set(theirs)
    for runtime in runtimes:
        assert sorted(runtime.delivered_ids()) == sorted(
            (author, sequence)
            for author, sequence in union
            if all((author, earlier) in union for earlier in range(1, sequence))
        )
    # No message was sent that the other's digest covered.
    near, far = cable.ends
    for end, other, mine, others in ((near, far, ours, theirs), (far, near, theirs, ours)):
        positions = {each.author: each.last_contiguous for each in digest_on(other).authors}
        assert all(sequence > positions.get(author, 0) for author, sequence in end.broadcast_ids())
        assert set(mine) - set(others) <= set(end.broadcast_ids()) <= set(mine)


# Gaps found by a digest.


def long_connected(runtime: FakeRuntime, settings: Tuning = SHORT_RETENTION) -> Peer:
    """A creator that has been connected for a long time."""
    peer = creator(runtime, settings)
    runtime.advance(LONG_S)
    return peer


def test_digest_with_newer_author_creates_gap() -> None:
    runtime = FakeRuntime()
    connection = link(long_connected(runtime), 2, digest_of((A, 1, 3), idle_ms=5000))
    runtime.advance(SHORT_RETENTION.gap_repair_delay_s)
    assert connection.sent_messages(Want) == [Want(A, 1, 3)]
    connection.remote_sends(broadcast_of(A, 1), broadcast_of(A, 2), broadcast_of(A, 3))
    assert runtime.delivered_ids() == [(A, 1), (A, 2), (A, 3)]


def test_claimed_messages_past_retention_are_missed() -> None:
    runtime = FakeRuntime()
    connection = link(long_connected(runtime), 2, digest_of((A, 1, 3), idle_ms=int(LONG_S * 1000) - 1))
    runtime.advance(2 * SHORT_RETENTION.retention_s)
    assert runtime.reported_missed == [Missed(A, 1, 3)]
    connection.remote_sends(broadcast_of(A, 4, stream_start=4))
    assert runtime.delivered_ids() == [(A, 4)]


def test_author_idle_since_before_join_creates_no_gap() -> None:
    runtime = FakeRuntime()
    connection = link(long_connected(runtime), 2, digest_of((A, 1, 5), idle_ms=int(LONG_S * 1000) + 1))
    runtime.advance(3 * SHORT_RETENTION.author_eviction_s)
    assert (connection.sent_messages(Want), runtime.reported_missed) == ([], [])
    connection.remote_sends(broadcast_of(A, 5), broadcast_of(A, 6, stream_start=6))
    assert runtime.delivered_ids() == [(A, 6)]
    assert runtime.reported_missed == []


def test_join_time_is_when_position_is_adopted() -> None:
    runtime = FakeRuntime()
    peer = seeker(runtime, SHORT_RETENTION)
    runtime.advance(LONG_S)
    link(peer, 2, digest_of())
    runtime.advance(1)
    connection = link(peer, 3, digest((AuthorState(A, 1, 5, 1001), AuthorState(B, 1, 2, 999))))
    runtime.advance(SHORT_RETENTION.gap_repair_delay_s)
    requests = [want for each in (connection, *runtime.dialed) for want in each.sent_messages(Want)]
    assert [want for want in requests if want.author == A] == []
    runtime.advance(3 * SHORT_RETENTION.gap_repair_delay_s)
    assert Want(B, 1, 2) in connection.sent_messages(Want)


def test_messages_of_known_author_past_retention_are_missed_without_request() -> None:
    # No peer retains them, so none is asked.
    runtime = FakeRuntime()
    peer = holder(runtime, broadcast_of(A, 1))
    connection = link(peer, 3, digest_of((A, 1, 3), idle_ms=10**9))
    runtime.advance(4 * NO_TIMEOUT.gap_repair_delay_s)
    assert (runtime.reported_missed, connection.sent_messages(Want)) == ([Missed(A, 2, 3)], [])


def test_recent_messages_of_long_idle_author_are_requested() -> None:
    # After a partition: only the other side received the author's recent messages, and still retains them.
    runtime = FakeRuntime()
    peer = creator(runtime, SHORT_RETENTION)
    link(peer, 2).remote_sends(broadcast_of(A, 1))
    runtime.advance(2 * SHORT_RETENTION.retention_s)
    connection = link(peer, 3, digest_of((A, 1, 3), idle_ms=1000))
    runtime.advance(4 * SHORT_RETENTION.gap_repair_delay_s)
    assert runtime.reported_missed == []
    assert Want(A, 2, 3) in connection.sent_messages(Want)


def test_claimed_author_beyond_authors_max_creates_no_gap() -> None:
    runtime = FakeRuntime()
    peer = long_connected(runtime, Tuning(heartbeat_timeout_s=1e9, authors_max=1))
    connection = link(peer, 2, digest_of((A, 1, 1), (B, 1, 1)))
    runtime.advance(NO_TIMEOUT.gap_repair_delay_s)
    assert connection.sent_messages(Want) == [Want(A, 1, 1)]


# After a long partition.


def link_joiner(peer: Peer, name: int) -> FakeConnection:
    """Link a peer that has no position yet."""
    connection = open_exchange(peer, hello(name, has_position=False), LinkRequest())
    connection.remote_sends(NEW_DIGEST)
    return connection


def with_idle_author(runtime: FakeRuntime) -> tuple[Peer, FakeConnection]:
    """A peer that received a message of A long ago and one of B just now."""
    peer = creator(runtime, SHORT_RETENTION)
    connection = link(peer, 2)
    connection.remote_sends(broadcast_of(A, 1))
    runtime.advance(SHORT_RETENTION.author_eviction_s + 1)
    connection.remote_sends(broadcast_of(B, 1))
    return peer, connection


def authors_on(connection: FakeConnection) -> list[int]:
    return [each.author for each in digest_on(connection).authors]


def test_digest_between_members_omits_long_idle_authors() -> None:
    peer, _connection = with_idle_author(FakeRuntime())
    connection = link(peer, 3)
    assert authors_on(connection) == [B]
    assert not digest_on(connection).is_complete
    assert connection.sent_messages(LastKnown) == []


def test_digest_for_joiner_includes_every_author() -> None:
    peer, _connection = with_idle_author(FakeRuntime())
    connection = link_joiner(peer, 3)
    assert sorted(authors_on(connection)) == [A, B]
    assert digest_on(connection).is_complete


def test_isolated_peer_sends_one_complete_digest() -> None:
    peer, connection = with_idle_author(FakeRuntime())
    connection.remote_closes()
    first, second = link(peer, 3), link(peer, 4)
    assert (sorted(authors_on(first)), digest_on(first).is_complete) == ([A, B], True)
    assert (authors_on(second), digest_on(second).is_complete) == ([B], False)


def test_complete_digest_is_answered_with_long_idle_authors() -> None:
    peer, _connection = with_idle_author(FakeRuntime())
    connection = link(peer, 3, digest(is_complete=True))
    (last_known,) = connection.sent_messages(LastKnown)
    assert [(each.author, each.last_contiguous) for each in last_known.authors] == [(A, 1)]


def test_last_known_creates_gap() -> None:
    runtime = FakeRuntime()
    connection = link(creator(runtime), 2)
    connection.remote_sends(broadcast_of(A, 1), LastKnown((AuthorState(A, 1, 3, 0),)))
    runtime.advance(NO_TIMEOUT.gap_repair_delay_s)
    assert connection.sent_messages(Want) == [Want(A, 2, 3)]


def test_claim_that_stays_open_is_propagated_once() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connections = [link(peer, name) for name in (2, 3)]
    connections[0].remote_sends(broadcast_of(A, 1))
    for _ in range(3):
        connections[0].remote_sends(LastKnown((AuthorState(A, 1, 3, 0),)))
        runtime.advance(2 * NO_TIMEOUT.gap_repair_delay_s)
    (last_known,) = connections[1].sent_messages(LastKnown)
    assert [(each.author, each.last_contiguous) for each in last_known.authors] == [(A, 3)]


def test_propagated_claim_keeps_its_age() -> None:
    # With a higher age, receivers would take it for past retention, or for older than their join, and not ask.
    runtime = FakeRuntime()
    peer = creator(runtime, SHORT_RETENTION)
    connections = [link(peer, name) for name in (2, 3)]
    connections[0].remote_sends(broadcast_of(A, 1))
    runtime.advance(2 * SHORT_RETENTION.retention_s)
    connections[0].remote_sends(LastKnown((AuthorState(A, 1, 3, 1000),)))
    runtime.advance(SHORT_RETENTION.gap_repair_delay_s)
    assert [last_known.authors for last_known in connections[1].sent_messages(LastKnown)] == [
        (AuthorState(A, 1, 3, 1500),)
    ]


def test_claim_that_closes_in_time_is_not_propagated() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connections = [link(peer, name) for name in (2, 3)]
    connections[0].remote_sends(broadcast_of(A, 1), LastKnown((AuthorState(A, 1, 2, 0),)), broadcast_of(A, 2))
    runtime.advance(4 * NO_TIMEOUT.gap_repair_delay_s)
    assert [connection.sent_messages(LastKnown) for connection in connections] == [[], []]
