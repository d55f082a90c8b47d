"""The author side: numbering, bundles, sending to the links."""

from collections.abc import Callable

import pytest

from broadloom.protocol import Peer, Tuning
from broadloom.wire import Broadcast, WireError
from broadloom.wire.broadcast_frame import BUNDLE_MESSAGES_MAX, decode_broadcast
from broadloom.wire.framing import FRAME_BYTES_MAX
from broadloom.wire.payload_kind import PayloadKind
from tests.protocol.broadcast.harness import SHORT_RETENTION, wants
from tests.protocol.fake_runtime import (
    ME,
    NO_TIMEOUT,
    FakeConnection,
    FakeRuntime,
    broadcast_of,
    creator,
    link,
)


def test_own_message_goes_to_all_links_as_same_bytes() -> None:
    peer = creator(FakeRuntime())
    connections = [link(peer, name) for name in (2, 3, 4)]
    assert peer.broadcast(b"e4") == 1
    (first,), *rest = (connection.broadcast_frames() for connection in connections)
    assert all(copies[0] is first and len(copies) == 1 for copies in rest)
    assert decode_broadcast(first) == Broadcast(ME, 1, 1, (b"e4",), hops=1, age_ms=0)


def test_own_message_is_neither_delivered_nor_relayed() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    one, other = link(peer, 2), link(peer, 3)
    peer.broadcast(b"e4")
    other.remote_sends(one.broadcasts()[0]._replace(hops=3))
    assert runtime.delivered == []
    assert (one.broadcast_ids(), other.broadcast_ids()) == ([(ME, 1)], [(ME, 1)])


def test_forged_message_in_own_name_is_ignored() -> None:
    # Another peer sends in this peer's name: the message is not delivered, and the own numbers are unaffected.
    runtime = FakeRuntime()
    peer = creator(runtime, SHORT_RETENTION)
    one, other = link(peer, 2), link(peer, 3)
    one.remote_sends(broadcast_of(ME, 2))
    assert [peer.broadcast(b"mine") for _ in range(3)] == [1, 2, 3]
    assert [each.messages for each in other.broadcasts()] == [(b"mine",)] * 3
    assert runtime.delivered == []
    runtime.advance(2 * SHORT_RETENTION.retention_s)
    assert (runtime.reported_missed, wants(one, other)) == ([], [])


def test_oversized_message_uses_no_sequence_number() -> None:
    peer = creator(FakeRuntime())
    connection = link(peer, 2)
    assert peer.broadcast(b"e4") == 1
    with pytest.raises(WireError):
        peer.broadcast(bytes(FRAME_BYTES_MAX))
    assert peer.broadcast(b"e5") == 2
    assert connection.broadcast_ids() == [(ME, 1), (ME, 2)]


def test_broadcast_raises_runtime_error_when_not_connected() -> None:
    peer = creator(FakeRuntime())
    peer.leave()
    with pytest.raises(RuntimeError, match="left"):
        peer.broadcast(b"e4")


def test_author_starts_new_stream_after_retention() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, SHORT_RETENTION)
    connection = link(peer, 2)
    peer.broadcast(b"")
    runtime.advance(SHORT_RETENTION.retention_s - 0.1)
    peer.broadcast(b"")
    runtime.advance(SHORT_RETENTION.retention_s + 0.1)
    peer.broadcast(b"")
    assert [(each.sequence, each.stream_start) for each in connection.broadcasts()] == [(1, 1), (2, 1), (3, 3)]


# Bundles.


class TurnBasedRuntime(FakeRuntime):
    """Runs `call_soon` callbacks when the test ends the turn."""

    def __init__(self) -> None:
        super().__init__()
        self._soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def end_turn(self) -> None:
        callbacks, self._soon = self._soon, []
        for callback in callbacks:
            callback()


def bundles(connection: FakeConnection) -> list[tuple[int, int]]:
    """First sequence number and number of messages of each frame."""
    return [(each.sequence, len(each.messages)) for each in connection.broadcasts()]


def author_that_has_just_sent(runtime: TurnBasedRuntime, tuning: Tuning = NO_TIMEOUT) -> tuple[Peer, FakeConnection]:
    """Message 1 went out; others of this turn are bundled."""
    peer = creator(runtime, tuning)
    connection = link(peer, 2)
    peer.broadcast(b"first")
    runtime.end_turn()
    assert bundles(connection) == [(1, 1)]
    return peer, connection


def test_messages_of_one_turn_share_a_frame() -> None:
    runtime = TurnBasedRuntime()
    peer, connection = author_that_has_just_sent(runtime)
    assert [peer.broadcast(b"%d" % number) for number in range(3)] == [2, 3, 4]
    assert bundles(connection) == [(1, 1)]
    runtime.end_turn()
    assert [each.messages for each in connection.broadcasts()[1:]] == [(b"0", b"1", b"2")]
    assert peer.broadcast(b"3") == 5
    runtime.end_turn()
    runtime.advance(1.0)
    assert bundles(connection) == [(1, 1), (2, 3), (5, 1)]
    assert peer.counters.sent == 5


def test_burst_after_a_pause_shares_a_frame() -> None:
    runtime = TurnBasedRuntime()
    peer, connection = author_that_has_just_sent(runtime)
    runtime.advance(1.0)
    for number in range(3):
        peer.broadcast(b"%d" % number)
    assert bundles(connection) == [(1, 1)]
    runtime.end_turn()
    assert bundles(connection) == [(1, 1), (2, 3)]


def author_of_single_messages(runtime: TurnBasedRuntime) -> tuple[Peer, FakeConnection, int]:
    """An author whose messages are sent at once, and the number of the last one."""
    peer, connection = author_that_has_just_sent(runtime)
    last = 2
    while bundles(connection)[-1] != (last, 1):
        runtime.end_turn()
        runtime.advance(0.02)
        last = peer.broadcast(b"single")
        assert last < 20, "no message was sent at once"
    runtime.end_turn()
    runtime.advance(0.02)
    return peer, connection, last


def test_author_of_many_single_messages_sends_each_at_once() -> None:
    runtime = TurnBasedRuntime()
    peer, connection, last = author_of_single_messages(runtime)
    assert last > 10
    last = peer.broadcast(b"at once")
    assert bundles(connection)[-1] == (last, 1)
    assert peer.broadcast(b"in the same turn") == last + 1
    assert bundles(connection)[-1] == (last, 1)
    runtime.end_turn()
    assert bundles(connection)[-1] == (last + 1, 1)


def test_author_of_bursts_sends_each_as_one_frame() -> None:
    """Also after single messages: a burst that was split counts as two frames, so the next one would be split, too."""
    runtime = TurnBasedRuntime()
    peer, connection, last = author_of_single_messages(runtime)
    for _ in range(20):
        for _ in range(3):
            peer.broadcast(b"burst")
        runtime.end_turn()
        runtime.advance(0.05)
    assert bundles(connection)[last:] == [(last + 1, 1), (last + 2, 2), *((last + 3 * n + 1, 3) for n in range(1, 20))]


def test_message_sent_at_once_joins_queue_of_congested_link() -> None:
    peer, connection, last = author_of_single_messages(TurnBasedRuntime())
    connection.is_congested = True
    peer.broadcast(b"waits")
    assert bundles(connection)[-1] == (last, 1)
    connection.is_congested = False
    connection.handler.on_writable()
    assert bundles(connection)[-1] == (last + 1, 1)


def test_turn_without_messages_sends_nothing() -> None:
    runtime = TurnBasedRuntime()
    connection = link(creator(runtime), 2)
    runtime.end_turn()
    assert not connection.broadcast_frames()


def test_bundle_is_sent_when_bundle_bytes_is_reached() -> None:
    runtime = TurnBasedRuntime()
    peer, connection = author_that_has_just_sent(runtime, Tuning(heartbeat_timeout_s=1e9, bundle_bytes=100))
    for size in (40, 40, 40, 300, 100, 1):
        peer.broadcast(bytes(size))
    runtime.end_turn()
    assert bundles(connection) == [(1, 1), (2, 2), (4, 1), (5, 1), (6, 1), (7, 1)]


def test_bundle_holds_limited_number_of_messages() -> None:
    runtime = TurnBasedRuntime()
    peer, connection = author_that_has_just_sent(runtime)
    sequences = [peer.broadcast(b"") for _ in range(BUNDLE_MESSAGES_MAX + 1)]
    runtime.end_turn()
    assert sequences == list(range(2, BUNDLE_MESSAGES_MAX + 3))
    assert bundles(connection) == [(1, 1), (2, BUNDLE_MESSAGES_MAX), (BUNDLE_MESSAGES_MAX + 2, 1)]


def test_messages_of_one_frame_share_kind_priority_and_ttl() -> None:
    runtime = TurnBasedRuntime()
    peer, connection = author_that_has_just_sent(runtime)
    broadcaster = peer.broadcaster
    broadcaster.broadcast(b"", PayloadKind.DATA)
    broadcaster.broadcast(b"", PayloadKind.DATA)
    broadcaster.broadcast(b"", PayloadKind.FRAGMENT)
    broadcaster.broadcast(b"", PayloadKind.FRAGMENT, 7)
    broadcaster.broadcast(b"", PayloadKind.FRAGMENT, 7, 500)
    broadcaster.broadcast(b"", PayloadKind.FRAGMENT, 7, 500)
    runtime.end_turn()
    assert bundles(connection) == [(1, 1), (2, 2), (4, 1), (5, 1), (6, 2)]
    attributes = [(each.kind, each.ttl_ms) for each in connection.broadcasts()[1:]]
    assert attributes == [
        (PayloadKind.DATA, 0),
        (PayloadKind.FRAGMENT, 0),
        (PayloadKind.FRAGMENT, 0),
        (PayloadKind.FRAGMENT, 500),
    ]
    assert [each.priority for each in connection.broadcasts()[3:]] == [7, 7]


def test_link_in_the_middle_of_a_turn_loses_no_message() -> None:
    runtime = TurnBasedRuntime()
    peer = creator(runtime)
    peer.broadcast(b"before")
    connection = link(peer, 2)
    peer.broadcast(b"after")
    runtime.end_turn()
    runtime.advance(1.0)
    assert connection.broadcast_ids() == [(ME, 1), (ME, 2)]


def test_leave_in_the_middle_of_a_turn_sends_open_bundle() -> None:
    runtime = TurnBasedRuntime()
    peer = creator(runtime)
    connection = link(peer, 2)
    peer.broadcast(b"last")
    peer.leave()
    assert connection.broadcast_ids() == [(ME, 1)]
