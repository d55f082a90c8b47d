"""What a latecomer does for a neighbour that lacks what was said before its time."""

from broadloom.protocol import Peer
from broadloom.protocol.broadcast.backfill import BACKFILL_INTERVAL_S, BACKFILL_TIMEOUT_S, BACKFILLS_MAX
from broadloom.protocol.broadcast.gap_repair import NEVER_HELD_TIMEOUT_S
from broadloom.protocol.events import Missed
from broadloom.wire.link_messages import LastKnown, Unavailable, UnavailableReason, Want
from tests.protocol import signed_runtime
from tests.protocol.fake_runtime import FakeConnection, FakeRuntime, broadcast_of, digest, digest_of, link, seeker

A = 71


def latecomer(world: FakeRuntime) -> tuple[Peer, FakeConnection, FakeConnection]:
    """It came when the author had said five; a neighbour that has them, and one that lacks them."""
    peer = seeker(world)
    holds = link(peer, 2, digest_of((A, 1, 5)))
    return peer, holds, link(peer, 3)


def test_it_fetches_them_and_keeps_them_to_itself() -> None:
    world = FakeRuntime()
    _, holds, lacks = latecomer(world)
    lacks.remote_sends(Want(A, 1, 3))
    assert lacks.sent_messages(Unavailable) == [Unavailable(A, 1, 5, UnavailableReason.NEVER_HELD)]
    assert holds.sent_messages(Want) == [Want(A, 1, 5)]
    holds.remote_sends(broadcast_of(A, 1), broadcast_of(A, 2))
    assert lacks.broadcast_ids() == [(A, 1), (A, 2)]
    assert world.delivered_ids() == [], "they are none of its own business"
    lacks.remote_sends(Want(A, 1, 2))
    assert lacks.broadcast_ids() == [(A, 1), (A, 2)] * 2, "whoever asks again gets them from what is kept"


def test_all_other_neighbours_are_asked_but_not_often() -> None:
    world = FakeRuntime()
    peer, holds, lacks = latecomer(world)
    more = link(peer, 4)
    for _ in range(10):
        lacks.remote_sends(Want(A, 1, 3))
    assert len(holds.sent_messages(Want)) == len(more.sent_messages(Want)) == 1
    assert not lacks.sent_messages(Want)
    world.advance(BACKFILL_INTERVAL_S + 0.01)
    lacks.remote_sends(Want(A, 1, 3))
    assert len(holds.sent_messages(Want)) == len(more.sent_messages(Want)) == 2


def test_a_second_copy_is_no_branch_too_many() -> None:
    world = FakeRuntime()
    peer, holds, lacks = latecomer(world)
    more = link(peer, 4)
    lacks.remote_sends(Want(A, 1, 3))
    holds.remote_sends(broadcast_of(A, 1))
    more.remote_sends(broadcast_of(A, 1))
    assert lacks.broadcast_ids() == [(A, 1)]
    assert peer.counters.duplicates == 0


def test_what_nobody_asked_for_is_a_duplicate_as_ever() -> None:
    world = FakeRuntime()
    peer, holds, lacks = latecomer(world)
    holds.remote_sends(broadcast_of(A, 1))
    lacks.remote_sends(Want(A, 1, 2))
    holds.remote_sends(broadcast_of(A, 4, age_ms=10**9))
    world.advance(BACKFILL_TIMEOUT_S + 1)
    holds.remote_sends(broadcast_of(A, 2))
    assert lacks.broadcast_ids() == []
    assert peer.counters.duplicates == 3


def test_there_are_not_many_errands_at_once() -> None:
    world = FakeRuntime()
    peer = seeker(world)
    authors = range(100, 100 + 2 * BACKFILLS_MAX)
    holds = link(peer, 2, digest_of(*((author, 1, 5) for author in authors)))
    lacks = link(peer, 3)
    for author in authors:
        lacks.remote_sends(Want(author, 1, 5))
    assert len(holds.sent_messages(Want)) == BACKFILLS_MAX
    world.advance(BACKFILL_TIMEOUT_S + 1)
    for author in reversed(authors):
        lacks.remote_sends(Want(author, 1, 5))
    assert len(holds.sent_messages(Want)) == 2 * BACKFILLS_MAX, "old ones make room"


def test_a_neighbour_that_has_gone_meanwhile_gets_nothing() -> None:
    world = FakeRuntime()
    peer, holds, lacks = latecomer(world)
    lacks.remote_sends(Want(A, 1, 3))
    lacks.remote_closes()
    holds.remote_sends(broadcast_of(A, 1))
    assert lacks.broadcast_ids() == []
    assert peer.broadcaster.retention.get(A, 1) is not None


def test_on_a_signed_channel_only_what_was_checked_is_passed_on() -> None:
    world = FakeRuntime()
    peer, _ = signed_runtime.member(world)
    holds, lacks = signed_runtime.link(peer, 2), signed_runtime.link(peer, 3)
    holds.remote_sends(signed_runtime.credential())
    window = peer.broadcaster.receiver.add_window(signed_runtime.AUTHOR, 1, 0.0)
    assert window is not None
    window.start_at(5)
    lacks.remote_sends(Want(signed_runtime.AUTHOR, 1, 3))
    holds.remote_sends(signed_runtime.signed(signed_runtime.AUTHOR, 1))
    assert signed_runtime.sent_items(lacks) == [
        ("credential", signed_runtime.AUTHOR),
        ("message", signed_runtime.AUTHOR),
    ]
    holds.remote_sends(signed_runtime.signed(signed_runtime.AUTHOR, 2, channel=b"another channel!"))
    assert peer.counters.bad_signatures == 1
    assert len(signed_runtime.sent_items(lacks)) == 2


def test_it_tells_its_neighbours_of_what_was_said_before_its_time() -> None:
    world = FakeRuntime()
    peer = seeker(world)
    older = link(peer, 2, digest_of())
    world.advance(5)
    link(peer, 3, digest_of((A, 1, 5), idle_ms=60_000))
    world.advance(1)
    (told,) = older.sent_messages(LastKnown)
    (have,) = told.authors
    assert (have.author, have.stream_start, have.last_contiguous) == (A, 1, 5)
    assert 60_000 <= have.idle_ms <= 61_000
    assert world.delivered_ids() == []


def test_it_does_not_tell_of_what_nobody_can_have_any_more() -> None:
    world = FakeRuntime()
    peer = seeker(world)
    older = link(peer, 2, digest_of())
    link(peer, 3, digest_of((A, 1, 5), idle_ms=1000 * int(peer.settings.retention_s + 1)))
    world.advance(1)
    assert older.sent_messages(LastKnown) == []


# The side that lacks them.


def test_what_all_neighbours_came_after_and_find_nowhere_is_not_waited_for_long() -> None:
    world = FakeRuntime()
    peer = seeker(world)
    lines = [link(peer, 2, digest_of()), link(peer, 3, digest())]
    lines[0].remote_sends(broadcast_of(A, 3))
    while world.time < NEVER_HELD_TIMEOUT_S - 1:
        world.advance(0.5)
        for line in lines:
            line.remote_sends(Unavailable(A, 1, 2, UnavailableReason.NEVER_HELD))
    assert (world.reported_missed, world.delivered) == ([], [])
    while world.time < NEVER_HELD_TIMEOUT_S + 5:
        world.advance(0.5)
        for line in lines:
            line.remote_sends(Unavailable(A, 1, 2, UnavailableReason.NEVER_HELD))
    assert world.reported_missed == [Missed(A, 1, 2)]
    assert world.delivered_ids() == [(A, 3)]


def test_as_long_as_one_of_them_may_get_it_the_others_do_not_decide() -> None:
    world = FakeRuntime()
    peer = seeker(world)
    lines = [link(peer, 2, digest_of()), link(peer, 3, digest())]
    lines[0].remote_sends(broadcast_of(A, 3))
    while world.time < 3 * NEVER_HELD_TIMEOUT_S:
        world.advance(0.5)
        lines[0].remote_sends(Unavailable(A, 1, 2, UnavailableReason.NEVER_HELD))
        lines[1].remote_sends(Unavailable(A, 1, 2, UnavailableReason.PENDING))
    assert (world.reported_missed, world.delivered) == ([], [])
