"""The send backlog: a slow neighbor costs no memory, no author starves, and skipped messages are reported."""

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.broadcast.send_backlog import PULL_S
from broadloom.wire import Broadcast
from broadloom.wire.broadcast_frame import Dissemination, Priority
from broadloom.wire.link_messages import IHave, Prune, Unavailable, UnavailableReason, Want
from tests.protocol.fake_runtime import FakeConnection, FakeRuntime, creator, link

BUSY, QUIET, OTHER = 71, 72, 73
SETTINGS = Tuning(heartbeat_timeout_s=1e9, straggler_timeout_s=0.0)


def frame(
    author: int, sequence: int, *, size: int = 100, priority: int = Priority.NORMAL, ttl_ms: int = 0
) -> Broadcast:
    return Broadcast(
        author,
        sequence,
        1,
        (bytes(size),),
        hops=2,
        dissemination=Dissemination.TREE,
        priority=priority,
        ttl_ms=ttl_ms,
    )


def congested_peer(settings: Tuning = SETTINGS) -> tuple[FakeRuntime, Peer, FakeConnection, FakeConnection]:
    runtime = FakeRuntime()
    peer = creator(runtime, settings)
    source, slow = link(peer, 2), link(peer, 3)
    slow.is_congested = True
    return runtime, peer, source, slow


def drain(connection: FakeConnection) -> None:
    connection.is_congested = False
    connection.handler.on_writable()


def test_congested_link_gets_frames_when_writable_again() -> None:
    _, _, source, slow = congested_peer()
    source.remote_sends(*(frame(BUSY, sequence) for sequence in range(1, 6)))
    assert slow.broadcast_ids() == []
    drain(slow)
    assert slow.broadcast_ids() == [(BUSY, sequence) for sequence in range(1, 6)]
    source.remote_sends(frame(BUSY, 6))
    assert slow.broadcast_ids()[-1] == (BUSY, 6), "sent directly again"


def test_busy_author_does_not_starve_other_authors() -> None:
    _, _, source, slow = congested_peer()
    source.remote_sends(*(frame(BUSY, sequence) for sequence in range(1, 50)))
    source.remote_sends(frame(QUIET, 1), frame(OTHER, 1), frame(QUIET, 2))
    drain(slow)
    first = slow.broadcast_ids()[:6]
    assert {(QUIET, 1), (QUIET, 2), (OTHER, 1)} <= set(first), first
    assert sorted(slow.broadcast_ids()) == sorted(
        [(BUSY, each) for each in range(1, 50)] + [(QUIET, 1), (QUIET, 2), (OTHER, 1)]
    )


def test_author_with_high_priority_goes_first_in_its_own_order() -> None:
    _, _, source, slow = congested_peer()
    source.remote_sends(*(frame(BUSY, sequence) for sequence in range(1, 10)))
    source.remote_sends(frame(QUIET, 1, priority=Priority.LOW), frame(QUIET, 2, priority=Priority.HIGH))
    drain(slow)
    assert slow.broadcast_ids()[:2] == [(QUIET, 1), (QUIET, 2)]


def test_drain_stops_when_link_is_congested_again() -> None:
    _, _, source, slow = congested_peer()
    source.remote_sends(*(frame(BUSY, sequence) for sequence in range(1, 10)))
    send_frame = slow.send

    def send(frame: bytes, rest: memoryview | None = None) -> None:
        send_frame(frame, rest)
        slow.is_congested = len(slow.broadcast_frames()) % 2 == 0

    slow.send = send  # type: ignore[method-assign]
    drain(slow)
    assert len(slow.broadcast_frames()) == 2
    drain(slow)
    assert slow.broadcast_ids() == [(BUSY, sequence) for sequence in range(1, 5)]


def test_sender_of_a_frame_gets_no_copy() -> None:
    _, _, source, slow = congested_peer()
    source.remote_sends(frame(BUSY, 1))
    slow.remote_sends(frame(BUSY, 2), frame(BUSY, 3))
    drain(slow)
    assert slow.broadcast_ids() == [(BUSY, 1)]


def test_prune_drops_backlog_of_author() -> None:
    _, _, source, slow = congested_peer()
    source.remote_sends(frame(BUSY, 1), frame(BUSY, 2))
    slow.remote_sends(Prune(BUSY))
    drain(slow)
    assert slow.broadcast_ids() == []


def test_long_backlog_sheds_low_priority_and_reports_it() -> None:
    _, peer, source, slow = congested_peer(Tuning(heartbeat_timeout_s=1e9, backlog_shed_bytes=1000))
    priorities = [Priority.LOW, Priority.NORMAL] * 4
    source.remote_sends(*(frame(BUSY, number, size=500, priority=each) for number, each in enumerate(priorities, 1)))
    drain(slow)
    assert slow.broadcast_ids() == [(BUSY, sequence) for sequence in (2, 4, 6, 8)]
    assert [(each.first, each.last, each.reason) for each in slow.sent_messages(Unavailable)] == [
        (n, n, UnavailableReason.DROPPED) for n in (1, 3, 5, 7)
    ]
    assert peer.counters.backlog_shed == 4


def test_pruned_backlog_does_not_count_for_the_next_one() -> None:
    settings = Tuning(heartbeat_timeout_s=1e9, backlog_shed_bytes=1000)
    _, peer, source, slow = congested_peer(settings)
    source.remote_sends(*(frame(BUSY, sequence, size=500) for sequence in range(1, 9)))
    slow.remote_sends(Prune(BUSY))
    source.remote_sends(frame(QUIET, 1, priority=Priority.LOW))
    drain(slow)
    assert slow.broadcast_ids() == [(QUIET, 1)]
    assert peer.counters.backlog_shed == 0


def test_backlog_that_became_lazy_does_not_count_for_the_next_one() -> None:
    settings = Tuning(
        heartbeat_timeout_s=1e9, straggler_timeout_s=0.0, backlog_shed_bytes=1000, backlog_lazy_bytes=2000
    )
    runtime, peer, source, slow = congested_peer(settings)
    source.remote_sends(frame(BUSY, 1, size=500))
    runtime.advance(0.1)
    source.remote_sends(*(frame(BUSY, sequence, size=500) for sequence in range(2, 9)))
    assert peer.counters.links_switched_to_lazy == 1
    source.remote_sends(frame(QUIET, 1, priority=Priority.LOW))
    drain(slow)
    assert slow.broadcast_ids() == [(QUIET, 1)]
    assert peer.counters.backlog_shed == 0


def test_short_backlog_sheds_nothing() -> None:
    _, peer, source, slow = congested_peer()
    source.remote_sends(frame(BUSY, 1, priority=Priority.LOW), frame(BUSY, 2))
    drain(slow)
    assert slow.broadcast_ids() == [(BUSY, 1), (BUSY, 2)]
    assert peer.counters.backlog_shed == 0


def test_expired_message_is_not_sent_from_backlog() -> None:
    runtime, _, source, slow = congested_peer()
    source.remote_sends(frame(BUSY, 1, ttl_ms=500), frame(BUSY, 2, ttl_ms=5000))
    runtime.advance(1)
    drain(slow)
    assert slow.broadcast_ids() == [(BUSY, 2)]
    assert [(each.first, each.last, each.reason) for each in slow.sent_messages(Unavailable)] == [
        (1, 1, UnavailableReason.DROPPED)
    ]


def test_age_grows_while_frame_waits_in_backlog() -> None:
    runtime, _, source, slow = congested_peer()
    source.remote_sends(frame(BUSY, 1))
    runtime.advance(2)
    drain(slow)
    assert slow.broadcasts()[0].age_ms == 2000


def test_link_with_too_long_backlog_becomes_lazy_and_pulls() -> None:
    settings = Tuning(
        heartbeat_timeout_s=1e9, straggler_timeout_s=0.1, backlog_shed_bytes=1000, backlog_lazy_bytes=5000
    )
    runtime, peer, source, slow = congested_peer(settings)
    source.remote_sends(frame(BUSY, 1, size=500))
    runtime.advance(0.2)
    source.remote_sends(*(frame(BUSY, sequence, size=500) for sequence in range(2, 20)))
    assert peer.counters.links_switched_to_lazy == 1
    drain(slow)
    assert slow.broadcast_ids() == []
    runtime.advance(1)
    assert [each.last_contiguous for ihave in slow.sent_messages(IHave) for each in ihave.positions][-1] == 19
    slow.remote_sends(Want(BUSY, 1, 19))
    assert slow.broadcast_ids() == [(BUSY, sequence) for sequence in range(1, 20)]


def lazy_neighbor_of_an_author() -> tuple[FakeRuntime, Peer, FakeConnection]:
    """It was congested for so long that it has to pull messages 1 to 19 of this peer."""
    settings = Tuning(
        heartbeat_timeout_s=1e9, straggler_timeout_s=0.1, backlog_shed_bytes=1000, backlog_lazy_bytes=5000
    )
    runtime, peer, _, slow = congested_peer(settings)
    for number in range(19):
        peer.broadcast(b"%d" % number + bytes(500))
        runtime.advance(0.02)
    assert peer.counters.links_switched_to_lazy == 1
    return runtime, peer, slow


def test_author_that_leaves_pushes_what_a_neighbor_was_to_pull() -> None:
    _, peer, slow = lazy_neighbor_of_an_author()
    peer.broadcaster.begin_leave()
    slow.remote_sends(Prune(peer.me.peer_id))  # it has had one of them before
    assert slow.broadcast_ids() == []
    drain(slow)
    assert slow.broadcast_ids() == [(peer.me.peer_id, sequence) for sequence in range(1, 20)]


def test_author_that_leaves_does_not_push_what_a_neighbor_has_long_pulled() -> None:
    runtime, peer, slow = lazy_neighbor_of_an_author()
    drain(slow)
    runtime.advance(2 * PULL_S)
    sent = slow.broadcast_ids()
    assert (peer.me.peer_id, 1) not in sent
    peer.broadcaster.begin_leave()
    assert slow.broadcast_ids() == sent


def test_author_that_leaves_pushes_only_what_was_not_pulled() -> None:
    _, peer, slow = lazy_neighbor_of_an_author()
    drain(slow)
    slow.remote_sends(Want(peer.me.peer_id, 1, 12))
    sent = slow.broadcast_ids()
    assert {sequence for _, sequence in sent} == set(range(1, 20))
    peer.broadcaster.begin_leave()
    peer.broadcaster.begin_leave()
    assert slow.broadcast_ids() == [*sent, *((peer.me.peer_id, sequence) for sequence in range(13, 20))]


def test_author_that_leaves_pushes_what_it_did_not_send_before_the_link_became_lazy_again() -> None:
    settings = Tuning(
        heartbeat_timeout_s=1e9, straggler_timeout_s=0.1, backlog_shed_bytes=1000, backlog_lazy_bytes=5000
    )
    runtime, peer, source, slow = congested_peer(settings)
    for _ in range(19):
        peer.broadcast(bytes(500))
        runtime.advance(0.02)
    runtime.advance(2.0)
    peer.broadcast(b"small, so it is flooded")
    for sequence in range(1, 30):
        source.remote_sends(frame(BUSY, sequence, size=500))
        runtime.advance(0.02)
    assert peer.counters.links_switched_to_lazy == 2
    peer.broadcaster.begin_leave()
    drain(slow)
    own = [sequence for author, sequence in slow.broadcast_ids() if author == peer.me.peer_id]
    assert own == list(range(1, 21))


def test_author_that_leaves_flushes_and_makes_no_link_lazy() -> None:
    settings = Tuning(
        heartbeat_timeout_s=1e9, straggler_timeout_s=0.1, backlog_shed_bytes=1000, backlog_lazy_bytes=5000
    )
    runtime, peer, source, slow = congested_peer(settings)
    peer.broadcast(b"last words")
    peer.broadcaster.begin_leave()
    for sequence in range(1, 30):
        source.remote_sends(frame(BUSY, sequence, size=500))
        runtime.advance(0.02)
    assert peer.counters.links_switched_to_lazy == 0
    drain(slow)
    assert (peer.me.peer_id, 1) in slow.broadcast_ids()


def test_burst_alone_does_not_make_link_lazy() -> None:
    settings = Tuning(heartbeat_timeout_s=1e9, backlog_shed_bytes=1000, backlog_lazy_bytes=5000)
    _, peer, source, slow = congested_peer(settings)
    source.remote_sends(*(frame(BUSY, sequence, size=500) for sequence in range(1, 20)))
    assert peer.counters.links_switched_to_lazy == 0
    drain(slow)
    assert len(slow.broadcast_ids()) == 19


def test_messages_dropped_from_retention_are_reported_in_one_range() -> None:
    settings = Tuning(heartbeat_timeout_s=1e9, retention_bytes_max=2000)
    _, peer, source, slow = congested_peer(settings)
    source.remote_sends(*(frame(BUSY, sequence, size=500) for sequence in range(1, 20)))
    drain(slow)
    retained = [sequence for _, sequence in slow.broadcast_ids()]
    assert retained == list(range(retained[0], 20))
    assert [(each.first, each.last, each.reason) for each in slow.sent_messages(Unavailable)] == [
        (1, retained[0] - 1, UnavailableReason.DROPPED)
    ]
    assert peer.broadcaster.retention.retained_bytes <= 2000
