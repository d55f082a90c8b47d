"""Backfill: a late joiner fetches older messages for a neighbor that lacks them."""

from broadloom.protocol import Peer
from broadloom.protocol.broadcast.backfill import BACKFILL_INTERVAL_S, BACKFILL_TIMEOUT_S, BACKFILLS_MAX
from broadloom.wire.link_messages import LastKnown, Unavailable, UnavailableReason, Want
from tests.protocol import signed_runtime
from tests.protocol.broadcast.harness import A
from tests.protocol.fake_runtime import FakeConnection, FakeRuntime, broadcast_of, digest_of, link, seeker


def late_joiner(runtime: FakeRuntime) -> tuple[Peer, FakeConnection, FakeConnection]:
    """A peer that joined after five messages of A, a neighbor that holds them, and one that lacks them."""
    peer = seeker(runtime)
    holder = link(peer, 2, digest_of((A, 1, 5)))
    return peer, holder, link(peer, 3)


def test_late_joiner_fetches_older_messages_and_does_not_deliver_them() -> None:
    runtime = FakeRuntime()
    _, holder, requester = late_joiner(runtime)
    requester.remote_sends(Want(A, 1, 3))
    assert requester.sent_messages(Unavailable) == [Unavailable(A, 1, 5, UnavailableReason.NEVER_HELD)]
    assert holder.sent_messages(Want) == [Want(A, 1, 5)]
    holder.remote_sends(broadcast_of(A, 1), broadcast_of(A, 2))
    assert requester.broadcast_ids() == [(A, 1), (A, 2)]
    assert runtime.delivered_ids() == [], "they were sent before it joined"
    requester.remote_sends(Want(A, 1, 2))
    assert requester.broadcast_ids() == [(A, 1), (A, 2)] * 2, "a second request is answered from retention"


def test_backfill_asks_all_other_neighbors_at_limited_rate() -> None:
    runtime = FakeRuntime()
    peer, holder, requester = late_joiner(runtime)
    more = link(peer, 4)
    for _ in range(10):
        requester.remote_sends(Want(A, 1, 3))
    assert len(holder.sent_messages(Want)) == len(more.sent_messages(Want)) == 1
    assert not requester.sent_messages(Want)
    runtime.advance(BACKFILL_INTERVAL_S + 0.01)
    requester.remote_sends(Want(A, 1, 3))
    assert len(holder.sent_messages(Want)) == len(more.sent_messages(Want)) == 2


def test_second_backfilled_copy_is_not_counted_as_duplicate() -> None:
    runtime = FakeRuntime()
    peer, holder, requester = late_joiner(runtime)
    more = link(peer, 4)
    requester.remote_sends(Want(A, 1, 3))
    holder.remote_sends(broadcast_of(A, 1))
    more.remote_sends(broadcast_of(A, 1))
    assert requester.broadcast_ids() == [(A, 1)]
    assert peer.counters.duplicates == 0


def test_unrequested_older_message_counts_as_duplicate() -> None:
    runtime = FakeRuntime()
    peer, holder, requester = late_joiner(runtime)
    holder.remote_sends(broadcast_of(A, 1))
    requester.remote_sends(Want(A, 1, 2))
    holder.remote_sends(broadcast_of(A, 4, age_ms=10**9))
    runtime.advance(BACKFILL_TIMEOUT_S + 1)
    holder.remote_sends(broadcast_of(A, 2))
    assert requester.broadcast_ids() == []
    assert peer.counters.duplicates == 3


def test_number_of_backfills_is_limited() -> None:
    runtime = FakeRuntime()
    peer = seeker(runtime)
    authors = range(100, 100 + 2 * BACKFILLS_MAX)
    holder = link(peer, 2, digest_of(*((author, 1, 5) for author in authors)))
    requester = link(peer, 3)
    for author in authors:
        requester.remote_sends(Want(author, 1, 5))
    assert len(holder.sent_messages(Want)) == BACKFILLS_MAX
    runtime.advance(BACKFILL_TIMEOUT_S + 1)
    for author in reversed(authors):
        requester.remote_sends(Want(author, 1, 5))
    assert len(holder.sent_messages(Want)) == 2 * BACKFILLS_MAX, "old ones expire"


def test_backfilled_frame_is_not_sent_to_lost_requester() -> None:
    runtime = FakeRuntime()
    peer, holder, requester = late_joiner(runtime)
    requester.remote_sends(Want(A, 1, 3))
    requester.remote_closes()
    holder.remote_sends(broadcast_of(A, 1))
    assert requester.broadcast_ids() == []
    assert peer.broadcaster.retention.get(A, 1) is not None


def test_backfill_forwards_only_verified_messages_on_signed_channel() -> None:
    runtime = FakeRuntime()
    peer, _ = signed_runtime.member(runtime)
    holder, requester = signed_runtime.link(peer, 2), signed_runtime.link(peer, 3)
    holder.remote_sends(signed_runtime.credential())
    window = peer.broadcaster.receiver.add_window(signed_runtime.AUTHOR, 1, 0.0)
    assert window is not None
    peer.broadcaster.receiver.start_after(window, 5)
    requester.remote_sends(Want(signed_runtime.AUTHOR, 1, 3))
    holder.remote_sends(signed_runtime.signed(signed_runtime.AUTHOR, 1))
    assert signed_runtime.sent_items(requester) == [
        ("credential", signed_runtime.AUTHOR),
        ("message", signed_runtime.AUTHOR),
    ]
    holder.remote_sends(signed_runtime.signed(signed_runtime.AUTHOR, 2, channel=b"another channel!"))
    assert peer.counters.bad_signatures == 1
    assert len(signed_runtime.sent_items(requester)) == 2


def test_late_joiner_announces_older_messages_to_neighbors() -> None:
    runtime = FakeRuntime()
    peer = seeker(runtime)
    older = link(peer, 2, digest_of())
    runtime.advance(5)
    link(peer, 3, digest_of((A, 1, 5), idle_ms=60_000))
    runtime.advance(1)
    (claim,) = older.sent_messages(LastKnown)
    (state,) = claim.authors
    assert (state.author, state.stream_start, state.last_contiguous) == (A, 1, 5)
    assert 60_000 <= state.idle_ms <= 61_000
    assert runtime.delivered_ids() == []


def test_late_joiner_does_not_announce_messages_past_retention() -> None:
    runtime = FakeRuntime()
    peer = seeker(runtime)
    older = link(peer, 2, digest_of())
    link(peer, 3, digest_of((A, 1, 5), idle_ms=1000 * int(peer.settings.retention_s + 1)))
    runtime.advance(1)
    assert older.sent_messages(LastKnown) == []
