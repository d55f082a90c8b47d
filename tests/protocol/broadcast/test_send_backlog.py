"""What a neighbour that reads slowly is owed: nothing is stored for it, nobody starves, all is told."""

from broadloom.protocol import Peer, Tuning
from broadloom.wire import Broadcast
from broadloom.wire.broadcast_frame import Dissemination, Priority
from broadloom.wire.link_messages import IHave, Prune, Unavailable, UnavailableReason, Want
from tests.protocol.fake_runtime import FakeConnection, FakeRuntime, founder, link

LOUD, QUIET, OTHER = 71, 72, 73
PATIENT = Tuning(heartbeat_timeout_s=1e9, straggler_timeout_s=0.0)


def frame(
    author: int, sequence: int, *, size: int = 100, priority: int = Priority.NORMAL, lifetime_ms: int = 0
) -> Broadcast:
    return Broadcast(
        author,
        sequence,
        1,
        (bytes(size),),
        hops=2,
        dissemination=Dissemination.TREE,
        priority=priority,
        ttl_ms=lifetime_ms,
    )


def with_full_line(settings: Tuning = PATIENT) -> tuple[FakeRuntime, Peer, FakeConnection, FakeConnection]:
    world = FakeRuntime()
    peer = founder(world, settings)
    source, slow = link(peer, 2), link(peer, 3)
    slow.is_congested = True
    return world, peer, source, slow


def drain(line: FakeConnection) -> None:
    line.is_congested = False
    line.handler.on_writable()


def test_nothing_goes_to_a_line_that_is_full_until_there_is_room() -> None:
    _, _, source, slow = with_full_line()
    source.remote_sends(*(frame(LOUD, sequence) for sequence in range(1, 6)))
    assert slow.broadcast_ids() == []
    drain(slow)
    assert slow.broadcast_ids() == [(LOUD, sequence) for sequence in range(1, 6)]
    source.remote_sends(frame(LOUD, 6))
    assert slow.broadcast_ids()[-1] == (LOUD, 6), "as it comes again"


def test_a_loud_author_does_not_keep_the_others_waiting() -> None:
    _, _, source, slow = with_full_line()
    source.remote_sends(*(frame(LOUD, sequence) for sequence in range(1, 50)))
    source.remote_sends(frame(QUIET, 1), frame(OTHER, 1), frame(QUIET, 2))
    drain(slow)
    first = slow.broadcast_ids()[:6]
    assert {(QUIET, 1), (QUIET, 2), (OTHER, 1)} <= set(first), first
    assert sorted(slow.broadcast_ids()) == sorted(
        [(LOUD, each) for each in range(1, 50)] + [(QUIET, 1), (QUIET, 2), (OTHER, 1)]
    )


def test_who_has_something_urgent_goes_first_and_in_its_own_order() -> None:
    _, _, source, slow = with_full_line()
    source.remote_sends(*(frame(LOUD, sequence) for sequence in range(1, 10)))
    source.remote_sends(frame(QUIET, 1, priority=Priority.LOW), frame(QUIET, 2, priority=Priority.HIGH))
    drain(slow)
    assert slow.broadcast_ids()[:2] == [(QUIET, 1), (QUIET, 2)]


def test_only_as_much_is_sent_as_there_is_room_for() -> None:
    _, _, source, slow = with_full_line()
    source.remote_sends(*(frame(LOUD, sequence) for sequence in range(1, 10)))
    honest = slow.send

    def send(frame: bytes, rest: memoryview | None = None) -> None:
        honest(frame, rest)
        slow.is_congested = len(slow.broadcast_frames()) % 2 == 0

    slow.send = send  # type: ignore[method-assign]
    drain(slow)
    assert len(slow.broadcast_frames()) == 2
    drain(slow)
    assert slow.broadcast_ids() == [(LOUD, sequence) for sequence in range(1, 5)]


def test_who_brought_it_gets_no_copy() -> None:
    _, _, source, slow = with_full_line()
    source.remote_sends(frame(LOUD, 1))
    slow.remote_sends(frame(LOUD, 2), frame(LOUD, 3))
    drain(slow)
    assert slow.broadcast_ids() == [(LOUD, 1)]


def test_who_gets_it_another_way_is_owed_nothing_any_more() -> None:
    _, _, source, slow = with_full_line()
    source.remote_sends(frame(LOUD, 1), frame(LOUD, 2))
    slow.remote_sends(Prune(LOUD))
    drain(slow)
    assert slow.broadcast_ids() == []


def test_who_is_far_behind_is_spared_what_has_low_priority_and_told_so() -> None:
    _, peer, source, slow = with_full_line(Tuning(heartbeat_timeout_s=1e9, backlog_shed_bytes=1000))
    priorities = [Priority.LOW, Priority.NORMAL] * 4
    source.remote_sends(*(frame(LOUD, number, size=500, priority=each) for number, each in enumerate(priorities, 1)))
    drain(slow)
    assert slow.broadcast_ids() == [(LOUD, sequence) for sequence in (2, 4, 6, 8)]
    assert [(gone.first, gone.last, gone.reason) for gone in slow.sent_messages(Unavailable)] == [
        (n, n, UnavailableReason.EXPIRED) for n in (1, 3, 5, 7)
    ]
    assert peer.counters.low_priority_shed == 4


def test_who_is_a_little_behind_is_spared_nothing() -> None:
    _, peer, source, slow = with_full_line()
    source.remote_sends(frame(LOUD, 1, priority=Priority.LOW), frame(LOUD, 2))
    drain(slow)
    assert slow.broadcast_ids() == [(LOUD, 1), (LOUD, 2)]
    assert peer.counters.low_priority_shed == 0


def test_what_has_expired_meanwhile_is_not_sent() -> None:
    world, _, source, slow = with_full_line()
    source.remote_sends(frame(LOUD, 1, lifetime_ms=500), frame(LOUD, 2, lifetime_ms=5000))
    world.advance(1)
    drain(slow)
    assert slow.broadcast_ids() == [(LOUD, 2)]
    assert [(gone.first, gone.last, gone.reason) for gone in slow.sent_messages(Unavailable)] == [
        (1, 1, UnavailableReason.EXPIRED)
    ]


def test_its_age_grows_while_it_waits() -> None:
    world, _, source, slow = with_full_line()
    source.remote_sends(frame(LOUD, 1))
    world.advance(2)
    drain(slow)
    assert slow.broadcasts()[0].age_ms == 2000


def test_who_is_too_far_behind_gets_names_and_then_what_it_asks_for() -> None:
    settings = Tuning(
        heartbeat_timeout_s=1e9, straggler_timeout_s=0.1, backlog_shed_bytes=1000, backlog_lazy_bytes=5000
    )
    world, peer, source, slow = with_full_line(settings)
    source.remote_sends(frame(LOUD, 1, size=500))
    world.advance(0.2)
    source.remote_sends(*(frame(LOUD, sequence, size=500) for sequence in range(2, 20)))
    assert peer.counters.links_switched_to_lazy == 1
    drain(slow)
    assert slow.broadcast_ids() == []
    world.advance(1)
    assert [each.last_contiguous for announce in slow.sent_messages(IHave) for each in announce.positions][-1] == 19
    slow.remote_sends(Want(LOUD, 1, 19))
    assert slow.broadcast_ids() == [(LOUD, sequence) for sequence in range(1, 20)]


def test_a_burst_alone_is_no_reason_for_names() -> None:
    settings = Tuning(heartbeat_timeout_s=1e9, backlog_shed_bytes=1000, backlog_lazy_bytes=5000)
    _, peer, source, slow = with_full_line(settings)
    source.remote_sends(*(frame(LOUD, sequence, size=500) for sequence in range(1, 20)))
    assert peer.counters.links_switched_to_lazy == 0
    drain(slow)
    assert len(slow.broadcast_ids()) == 19


def test_what_is_no_longer_kept_is_told_in_one_go() -> None:
    settings = Tuning(heartbeat_timeout_s=1e9, retention_bytes_max=2000)
    _, peer, source, slow = with_full_line(settings)
    source.remote_sends(*(frame(LOUD, sequence, size=500) for sequence in range(1, 20)))
    drain(slow)
    kept = [sequence for _, sequence in slow.broadcast_ids()]
    assert kept == list(range(kept[0], 20))
    assert [(gone.first, gone.last, gone.reason) for gone in slow.sent_messages(Unavailable)] == [
        (1, kept[0] - 1, UnavailableReason.EXPIRED)
    ]
    assert peer.broadcaster.retention.retained_bytes <= 2000
