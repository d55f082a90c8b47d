"""The receiving side: duplicates, relaying, order, and the authors that a peer tracks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.events import LinkDown, LinkDownReason, Message, Missed, PeerState
from broadloom.wire import Broadcast
from broadloom.wire.broadcast_frame import decode_broadcast, encode_broadcast
from broadloom.wire.exchange_messages import LinkRequest
from broadloom.wire.link_messages import Digest, LastKnown, Unavailable, UnavailableReason, Want
from broadloom.wire.types import AuthorState
from tests.protocol.broadcast.harness import SHORT_RETENTION, A, B, wants
from tests.protocol.fake_runtime import (
    CHANNEL,
    ME,
    NO_TIMEOUT,
    FakeConnection,
    FakeRuntime,
    broadcast_of,
    creator,
    hello,
    link,
    open_exchange,
    peer_info,
)
from tests.wire.wire_strategies import resized

# Order.


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Messages of two authors in any order, some repeated, each over one of three links."""
    last_a, last_b = draw(st.integers(1, 8)), draw(st.integers(0, 4))
    once = [(A, sequence) for sequence in range(1, last_a + 1)] + [(B, sequence) for sequence in range(1, last_b + 1)]
    again = draw(st.lists(st.sampled_from(once), max_size=8))
    order = draw(st.permutations(once + again))
    return [(author, sequence, draw(st.integers(0, 2))) for author, sequence in order]


@settings(deadline=None)
@given(arrivals())
def test_any_arrival_order_delivers_each_message_once_in_order(order: list[tuple[int, int, int]]) -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connections = [link(peer, name) for name in (2, 3, 4)]
    for author, sequence, number in order:
        connections[number].remote_sends(broadcast_of(author, sequence))
    for author in (A, B):
        delivered = [sequence for name, sequence in runtime.delivered_ids() if name == author]
        assert delivered == sorted({sequence for name, sequence, _ in order if name == author})
    assert all(message.data == b"%d" % message.sequence for message in runtime.delivered)
    assert peer.counters.duplicates == len(order) - len(runtime.delivered)
    # Each link that did not deliver the first copy gets the message exactly once.
    for number, connection in enumerate(connections):
        firsts = [next(each[2] for each in order if each[:2] == name) for name in runtime.delivered_ids()]
        expected = [name for name, first in zip(runtime.delivered_ids(), firsts, strict=True) if first != number]
        assert sorted(connection.broadcast_ids()) == sorted(expected)


def test_application_gets_author_sequence_data_and_hops() -> None:
    runtime = FakeRuntime()
    link(creator(runtime), 2).remote_sends(broadcast_of(A, 1, hops=7))
    assert runtime.delivered == [Message(A, 1, b"1", 7)]


def test_early_message_is_relayed_at_once_and_delivered_in_order() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    one, other = link(peer, 2), link(peer, 3)
    one.remote_sends(broadcast_of(A, 2))
    assert (other.broadcast_ids(), runtime.delivered_ids()) == ([(A, 2)], [])
    one.remote_sends(broadcast_of(A, 1))
    assert runtime.delivered_ids() == [(A, 1), (A, 2)]


# Relaying.


def test_first_copy_is_relayed_to_other_links_as_same_bytes() -> None:
    peer = creator(FakeRuntime())
    source, *others = (link(peer, name) for name in (2, 3, 4, 5))
    source.remote_sends(broadcast_of(A, 1, hops=4, age_ms=30))
    assert source.broadcast_frames() == []
    (first,), *rest = (connection.broadcast_frames() for connection in others)
    assert all(copies[0] is first and len(copies) == 1 for copies in rest)
    assert decode_broadcast(first) == broadcast_of(A, 1, hops=5, age_ms=30)


def test_further_copies_are_counted_as_duplicates() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    one, other = link(peer, 2), link(peer, 3)
    for connection in (one, other, other, one):
        connection.remote_sends(broadcast_of(A, 1))
    assert (one.broadcast_ids(), other.broadcast_ids(), runtime.delivered_ids()) == ([], [(A, 1)], [(A, 1)])
    assert peer.counters.duplicates == 3


# Malformed.


def truncated() -> bytes:
    return resized(encode_broadcast(broadcast_of(A, 1)._replace(messages=(b"12345678",)))[:-4])


VALID = encode_broadcast(broadcast_of(A, 1))
MALFORMED = {
    "cut short": truncated(),
    "cut in the core": resized(VALID[:30]),
    "only a header": resized(VALID[:8]),
    "trailing bytes": resized(VALID + bytes(4)),
    "another length": (len(VALID)).to_bytes(4, "big") + VALID[4:],
    "sequence of zero": VALID[:24] + bytes(8) + VALID[32:],
    "before its stream": VALID[:32] + (1).to_bytes(4, "big") + VALID[36:],
    "padding not zero": VALID[:-1] + b"\1",
}


def test_unmodified_frame_of_the_malformed_cases_is_delivered() -> None:
    runtime = FakeRuntime()
    link(creator(runtime), 2).remote_sends(VALID)
    assert runtime.delivered_ids() == [(A, 1)]


@pytest.mark.parametrize("frame", MALFORMED.values(), ids=list(MALFORMED))
def test_malformed_broadcast_closes_link_and_is_not_relayed(frame: bytes) -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    source, other = link(peer, 2), link(peer, 3)
    source.remote_sends(frame)
    assert (runtime.delivered, other.broadcast_frames()) == ([], [])
    assert source.closed
    assert not other.closed
    assert peer.links.neighbors == (3,)
    assert peer.counters.malformed_frames == 1
    assert [event.reason for event in runtime.events if isinstance(event, LinkDown)] == [LinkDownReason.PROTOCOL_ERROR]
    # It left no trace: the valid message is still new.
    other.remote_sends(broadcast_of(A, 1))
    assert runtime.delivered_ids() == [(A, 1)]


# Expired.


def test_copy_older_than_retention_is_ignored() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, SHORT_RETENTION)
    runtime.advance(20)
    one, other = link(peer, 2), link(peer, 3)
    one.remote_sends(broadcast_of(A, 1, age_ms=10_001))
    assert (runtime.delivered, other.broadcast_frames(), peer.counters.expired_copies) == ([], [], 1)
    one.remote_sends(broadcast_of(B, 1, age_ms=10_000))
    assert (runtime.delivered_ids(), other.broadcast_ids()) == ([(B, 1)], [(B, 1)])


# Idle authors.


def test_unknown_author_starts_with_message_one() -> None:
    # The starting position covers everything sent before the join, so this was sent later.
    runtime = FakeRuntime()
    connection = link(creator(runtime), 2)
    connection.remote_sends(broadcast_of(A, 5, stream_start=5))
    runtime.advance(NO_TIMEOUT.gap_repair_delay_s)
    assert wants(connection) == [Want(A, 1, 4)]


def test_idle_author_is_remembered() -> None:
    runtime = FakeRuntime()
    connection = link(creator(runtime, SHORT_RETENTION), 2)
    connection.remote_sends(broadcast_of(A, 1), broadcast_of(A, 2))
    runtime.advance(10 * SHORT_RETENTION.author_eviction_s)
    connection.remote_sends(broadcast_of(A, 3, stream_start=3))
    assert runtime.delivered_ids() == [(A, 1), (A, 2), (A, 3)]
    connection.remote_sends(broadcast_of(A, 6, stream_start=6))
    runtime.advance(SHORT_RETENTION.gap_repair_delay_s)
    assert wants(connection) == [Want(A, 4, 5)]


def test_digest_contains_start_of_current_stream() -> None:
    # Peers that evicted the author start there; the stream before is past retention.
    runtime = FakeRuntime()
    peer = creator(runtime, SHORT_RETENTION)
    connection = link(peer, 2)
    connection.remote_sends(broadcast_of(A, 1), broadcast_of(A, 2))
    runtime.advance(SHORT_RETENTION.retention_s + 2)
    connection.remote_sends(broadcast_of(A, 3, stream_start=3))
    (digest,) = link(peer, 9).sent_messages(Digest)
    assert digest.authors == (AuthorState(A, 3, 3, 0),)


def test_author_never_evicts_itself() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, FEW_AUTHORS)
    connection = link(peer, 2)
    assert peer.broadcast(b"") == 1
    for author in range(200, 220):
        runtime.advance(2 * FEW_AUTHORS.author_eviction_s)
        connection.remote_sends(broadcast_of(author, 1))
    assert peer.broadcast(b"") == 2


# Authors beyond the limit.

FEW_AUTHORS = Tuning(heartbeat_timeout_s=1e9, retention_s=10.0, authors_max=3)
C, D = 73, 74


def peer_at_author_limit(runtime: FakeRuntime) -> tuple[Peer, FakeConnection, FakeConnection]:
    """A peer that tracks as many authors as allowed; C sent last."""
    peer = creator(runtime, FEW_AUTHORS)
    connection, other = link(peer, 2), link(peer, 3)
    for author in (A, B, C):
        connection.remote_sends(broadcast_of(author, 1))
        runtime.advance(1)
    return peer, connection, other


def test_authors_beyond_limit_are_rejected_and_counted() -> None:
    runtime = FakeRuntime()
    peer, connection, other = peer_at_author_limit(runtime)
    connection.remote_sends(broadcast_of(D, 1), broadcast_of(75, 1), broadcast_of(A, 2))
    assert runtime.delivered_ids() == [(A, 1), (B, 1), (C, 1), (A, 2)] == other.broadcast_ids()
    assert peer.counters.authors_rejected == 2
    assert peer.broadcast(b"own messages are not rejected") == 1


def test_longest_idle_author_is_evicted_when_no_copy_is_left() -> None:
    runtime = FakeRuntime()
    peer, connection, other = peer_at_author_limit(runtime)
    runtime.advance(FEW_AUTHORS.author_eviction_s - 3.1)
    connection.remote_sends(broadcast_of(D, 1))
    assert peer.counters.authors_rejected == 1
    runtime.advance(0.2)
    connection.remote_sends(broadcast_of(D, 1))
    assert runtime.delivered_ids()[3:] == [(D, 1)]
    # B is still known, A is not; yet an old copy of A is not taken for new.
    connection.remote_sends(broadcast_of(B, 1), broadcast_of(A, 1, age_ms=int(FEW_AUTHORS.author_eviction_s * 1000)))
    assert runtime.delivered_ids()[4:] == []
    assert (peer.counters.duplicates, peer.counters.expired_copies) == (1, 1)
    assert other.broadcast_ids() == runtime.delivered_ids()


def test_evicted_author_restarts_at_new_stream_without_gap() -> None:
    runtime = FakeRuntime()
    _peer, connection, _other = peer_at_author_limit(runtime)
    runtime.advance(FEW_AUTHORS.author_eviction_s)
    connection.remote_sends(broadcast_of(D, 1))
    runtime.advance(FEW_AUTHORS.author_eviction_s)
    connection.remote_sends(broadcast_of(A, 5, stream_start=5), broadcast_of(A, 6, stream_start=5))
    runtime.advance(2 * FEW_AUTHORS.retention_s)
    assert runtime.delivered_ids()[4:] == [(A, 5), (A, 6)]
    assert (runtime.reported_missed, wants(connection)) == ([], [])


def test_author_with_gap_is_not_evicted() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, FEW_AUTHORS)
    connection = link(peer, 2)
    connection.remote_sends(broadcast_of(A, 2), broadcast_of(B, 1), broadcast_of(C, 1))
    connection.remote_closes()  # no neighbor to ask, so the gap stays open
    runtime.advance(FEW_AUTHORS.author_eviction_s + 1)
    link(peer, 3).remote_sends(broadcast_of(B, 2), broadcast_of(D, 1), broadcast_of(A, 1))
    assert runtime.delivered_ids() == [(B, 1), (C, 1), (B, 2), (D, 1), (A, 1), (A, 2)]


def test_own_idle_window_does_not_block_eviction() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, FEW_AUTHORS)
    connection = link(peer, 2)
    peer.broadcast(b"first")
    runtime.advance(1)
    connection.remote_sends(broadcast_of(A, 1), broadcast_of(B, 1))
    runtime.advance(FEW_AUTHORS.author_eviction_s)
    connection.remote_sends(broadcast_of(C, 1))
    assert runtime.delivered_ids() == [(A, 1), (B, 1), (C, 1)]


# -- newcomers


def newcomer(runtime: FakeRuntime, authors: tuple[AuthorState, ...] = ()) -> tuple[Peer, FakeConnection]:
    """A peer that has a starting position and a link, and waits for the other links of a full mesh."""
    peer = Peer(runtime, peer_info(ME), CHANNEL, (), NO_TIMEOUT)
    peer.start()
    peer.join_protocol.set_full_mesh(True)
    connection = open_exchange(peer, hello(2), LinkRequest())
    connection.remote_sends(Digest(is_new=False, is_complete=True, authors=authors, peer_sample=()))
    assert peer.state is PeerState.JOINING
    return peer, connection


def test_newcomer_relays_but_does_not_deliver_what_was_sent_before_it_was_connected() -> None:
    runtime = FakeRuntime()
    peer, first = newcomer(runtime)
    other = open_exchange(peer, hello(3), LinkRequest())
    other.remote_sends(Digest(is_new=False, is_complete=False, authors=(), peer_sample=()))
    first.remote_sends(Broadcast(7, 1, 1, (b"early",)))
    runtime.advance(1)
    assert [each.messages for each in other.broadcasts()] == [(b"early",)]
    peer.on_enough_links()
    first.remote_sends(
        Broadcast(7, 2, 1, (b"spent 500 ms at a relay",), age_ms=500),
        Broadcast(8, 1, 1, (b"on the way",), age_ms=0),
    )
    runtime.advance(1)
    first.remote_sends(Broadcast(7, 3, 1, (b"sent since",), age_ms=900), Broadcast(7, 4, 1, (b"late",), age_ms=5000))
    assert [message.data for message in runtime.delivered] == [b"on the way", b"sent since", b"late"]
    assert runtime.reported_missed == []


def test_newcomer_reports_no_gap_from_before_it_was_connected() -> None:
    runtime = FakeRuntime()
    peer, first = newcomer(runtime, (AuthorState(7, 1, 3, 0),))
    first.remote_sends(LastKnown((AuthorState(7, 1, 5, 200),)))
    peer.on_enough_links()
    first.remote_sends(Unavailable(7, 4, 5, UnavailableReason.DROPPED))
    runtime.advance(30)
    assert runtime.reported_missed == []
    first.remote_sends(Broadcast(7, 6, 1, (b"sent since",)))
    assert runtime.delivered_ids() == [(7, 6)]
    first.remote_sends(Unavailable(7, 7, 8, UnavailableReason.DROPPED))
    runtime.advance(30)
    assert runtime.reported_missed == [Missed(7, 7, 8)]
