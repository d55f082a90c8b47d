"""Acknowledgements: an author waits for the receivers that keep up, not for stragglers."""

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.broadcast.acks import ACK_STALE_S
from broadloom.wire import Broadcast
from broadloom.wire.broadcast_frame import Dissemination
from broadloom.wire.link_messages import Ack, Prune
from tests.protocol.broadcast.harness import A
from tests.protocol.fake_runtime import ME, FakeConnection, FakeRuntime, creator, link

SIZE = 64 << 10
SETTINGS = Tuning(
    heartbeat_timeout_s=1e9,
    send_window_bytes_max=1 << 20,
    send_window_bytes_min=1 << 20,
    straggler_timeout_s=0.5,
)
WINDOW = (1 << 20) // SIZE
"""Messages in a full send window."""
DEFAULTS = Tuning(heartbeat_timeout_s=1e9)


def author_with_two_children() -> tuple[FakeRuntime, Peer, FakeConnection, FakeConnection]:
    runtime = FakeRuntime()
    peer = creator(runtime, SETTINGS)
    return runtime, peer, link(peer, 2), link(peer, 3)


def send_messages(peer: Peer, count: int) -> None:
    for _ in range(count):
        peer.broadcast(bytes(SIZE))


def author_with_full_window() -> tuple[FakeRuntime, Peer, FakeConnection, FakeConnection]:
    """Both children have acknowledged the first messages only."""
    runtime, peer, one, other = author_with_two_children()
    send_messages(peer, 10)
    one.remote_sends(Ack(ME, 10))
    other.remote_sends(Ack(ME, 10))
    send_messages(peer, WINDOW + 1)
    assert is_window_full(peer)
    return runtime, peer, one, other


def frames(first: int, last: int) -> list[Broadcast]:
    return [
        Broadcast(A, each, 1, (bytes(SIZE),), hops=2, dissemination=Dissemination.TREE)
        for each in range(first, last + 1)
    ]


def is_window_full(peer: Peer) -> bool:
    peer.broadcaster.acks.recheck()
    return peer.broadcaster.acks.is_window_full


def test_author_does_not_wait_without_acks() -> None:
    _, peer, _, _ = author_with_two_children()
    send_messages(peer, 5 * WINDOW)
    assert not is_window_full(peer)


def test_author_waits_for_slowest_child_ack() -> None:
    _, peer, one, other = author_with_two_children()
    send_messages(peer, 10)
    one.remote_sends(Ack(ME, 10))
    other.remote_sends(Ack(ME, 8))
    send_messages(peer, WINDOW)
    assert is_window_full(peer)
    one.remote_sends(Ack(ME, 10 + WINDOW))
    assert is_window_full(peer), "the other child has not moved"
    other.remote_sends(Ack(ME, 20))
    assert not is_window_full(peer)


def test_straggler_holds_up_author_only_until_straggler_timeout() -> None:
    runtime, peer, one, other = author_with_two_children()
    send_messages(peer, 10)
    one.remote_sends(Ack(ME, 10))
    other.remote_sends(Ack(ME, 10))
    send_messages(peer, WINDOW + 20)
    one.remote_sends(Ack(ME, 30 + WINDOW))
    for acked in range(11, 19):
        assert is_window_full(peer), "it makes progress"
        other.remote_sends(Ack(ME, acked))
        runtime.advance(SETTINGS.straggler_timeout_s / 8)
    assert not is_window_full(peer), "but too slowly"
    send_messages(peer, 5 * WINDOW)
    one.remote_sends(Ack(ME, 30 + 6 * WINDOW))
    assert not is_window_full(peer)
    other.remote_sends(Ack(ME, 30 + 6 * WINDOW))
    send_messages(peer, WINDOW + 1)
    one.remote_sends(Ack(ME, 31 + 7 * WINDOW))
    assert is_window_full(peer), "it has caught up and counts again"


def test_silent_child_holds_up_author_until_straggler_timeout() -> None:
    """Not only while it acknowledges: on a busy machine it may just be waiting for the processor."""
    runtime, peer, one, other = author_with_two_children()
    send_messages(peer, 10)
    one.remote_sends(Ack(ME, 10))
    other.remote_sends(Ack(ME, 10))
    send_messages(peer, WINDOW + 1)
    one.remote_sends(Ack(ME, 10 + WINDOW + 1))
    assert is_window_full(peer)
    runtime.advance(SETTINGS.straggler_timeout_s - 0.01)
    assert is_window_full(peer)
    runtime.advance(0.02)
    assert not is_window_full(peer)


def test_author_waits_when_all_children_are_slow() -> None:
    runtime, peer, one, other = author_with_two_children()
    send_messages(peer, 10)
    one.remote_sends(Ack(ME, 10))
    other.remote_sends(Ack(ME, 10))
    send_messages(peer, WINDOW + 20)
    for acked in range(11, 19):
        one.remote_sends(Ack(ME, acked))
        other.remote_sends(Ack(ME, acked + 1))
        runtime.advance(SETTINGS.straggler_timeout_s / 4)
        assert is_window_full(peer), "no child is behind the others"


def test_send_window_follows_ack_rate() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, DEFAULTS)
    one = link(peer, 2)
    send_messages(peer, 1)
    for acked in range(1, 101):  # 640 KiB/s: the window is half of that, five messages
        one.remote_sends(Ack(ME, acked))
        runtime.advance(0.1)
        send_messages(peer, 1)
    assert not is_window_full(peer)
    send_messages(peer, 4)
    assert not is_window_full(peer)
    send_messages(peer, 1)
    assert is_window_full(peer)
    for acked in range(102, 200, 8):  # eight times as fast
        one.remote_sends(Ack(ME, acked))
        runtime.advance(0.1)
        send_messages(peer, 8)
    send_messages(peer, 20)
    assert not is_window_full(peer)


def test_pruned_or_lost_child_does_not_hold_up_author() -> None:
    _, peer, one, other = author_with_full_window()
    one.remote_sends(Prune(ME))
    assert is_window_full(peer)
    other.remote_closes()
    assert not is_window_full(peer)


def test_child_acks_once_per_ack_bytes() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, DEFAULTS)
    parent = link(peer, 2)
    parent.remote_sends(*frames(1, 4))
    assert parent.sent_messages(Ack) == []
    parent.remote_sends(*frames(5, 5))
    assert parent.sent_messages(Ack) == [Ack(A, 5)]
    parent.remote_sends(*frames(6, 13))
    assert [each.last_contiguous for each in parent.sent_messages(Ack)] == [5, 9, 13]


def test_relay_acks_position_of_its_slowest_child() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, DEFAULTS)
    parent, child = link(peer, 2), link(peer, 3)
    parent.remote_sends(*frames(1, 5))
    child.remote_sends(Ack(A, 4))
    parent.remote_sends(*frames(6, 13))
    assert [each.last_contiguous for each in parent.sent_messages(Ack)] == [5]
    child.remote_sends(Ack(A, 11))
    assert [each.last_contiguous for each in parent.sent_messages(Ack)] == [5, 11]


def test_ack_beyond_own_position_is_capped() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, DEFAULTS)
    parent, child = link(peer, 2), link(peer, 3)
    parent.remote_sends(*frames(1, 5))
    child.remote_sends(Ack(A, 1 << 60), Ack(999, 5))
    parent.remote_sends(*frames(6, 9))
    assert [each.last_contiguous for each in parent.sent_messages(Ack)] == [5], (
        "the position was 5 when the child acknowledged"
    )


def test_small_flooded_messages_cause_no_acks() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, DEFAULTS)
    parent = link(peer, 2)
    for sequence in range(1, 200):
        parent.remote_sends(Broadcast(A, sequence, 1, (b"little",), hops=2))
    assert parent.sent_messages(Ack) == []


def test_acks_are_more_frequent_when_send_window_is_small() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, DEFAULTS)
    parent = link(peer, 2)
    for each in range(1, 31):
        parent.remote_sends(*frames(each, each))
        runtime.advance(0.1)
    acked = [each.last_contiguous for each in parent.sent_messages(Ack)]
    assert acked[-3:] == [28, 29, 30]


def test_small_messages_after_large_ones_are_acknowledged() -> None:
    """An author and its two children: what the author takes for a full window, they acknowledge."""
    tuning = Tuning(heartbeat_timeout_s=1e9, flood_bytes_max=0)
    runtimes = [FakeRuntime(seed) for seed in range(3)]
    author = creator(runtimes[0], tuning)
    receivers = [creator(runtime, tuning, peer_id=9 + number) for number, runtime in enumerate(runtimes[1:])]
    cables = [(link(author, receiver.me.peer_id), link(receiver, ME)) for receiver in receivers]
    for number in range(200):
        assert not is_window_full(author), f"message {number} would wait for ever"
        is_large = number % 60 < 20
        author.broadcast(bytes(30_000 if is_large else 100))
        for runtime in runtimes:
            runtime.advance(0.2 if is_large else 0.02)
        for near, far in cables:
            far.remote_sends(*near.broadcast_frames())
            near.remote_sends(*far.sent_messages(Ack))
            near.sent.clear()
            far.sent.clear()


def test_child_that_stops_acknowledging_is_not_waited_for_for_ever() -> None:
    runtime, peer, _, _ = author_with_full_window()
    runtime.advance(ACK_STALE_S + 0.1)
    assert not is_window_full(peer)
