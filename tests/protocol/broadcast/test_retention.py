"""Retention: bounded by age and bytes, in order of arrival, with correct ages."""

import gc

from hypothesis import given
from hypothesis import strategies as st

from broadloom.protocol.broadcast.retention import RetainedFrame, RetentionBuffer
from broadloom.wire import Broadcast, PeerId
from broadloom.wire.broadcast_frame import SPLIT_FRAME_BYTES_MIN, Priority, decode_broadcast, encode_broadcast

SIZE_BYTES = len(encode_broadcast(Broadcast(1, 1, 1, (b"",))))
RETENTION_S = 10.0


def retained(
    sequence: int, received_at: float = 0.0, *, age_ms: int = 0, payload: bytes = b"", author: int = 1
) -> RetainedFrame:
    frame = encode_broadcast(Broadcast(author, sequence, 1, (payload,), hops=3, age_ms=age_ms))
    return RetainedFrame(author, sequence, sequence, frame, 3, age_ms, received_at)


def sequences(retention: RetentionBuffer) -> list[int]:
    return [each.first for each in retention.before(retention.end)]


def test_frames_are_found_by_sequence_and_in_order_of_arrival() -> None:
    retention = RetentionBuffer(RETENTION_S, 1 << 20)
    for sequence in (3, 1, 2):
        retention.add(retained(sequence))
    assert sequences(retention) == [3, 1, 2]
    assert retention.get(1, 2) == retained(2)
    assert retention.get(1, 4) is None
    assert retention.get(2, 2) is None


def test_oldest_frames_are_dropped_when_bytes_max_is_exceeded() -> None:
    retention = RetentionBuffer(RETENTION_S, 3 * SIZE_BYTES)
    for sequence in range(1, 6):
        retention.add(retained(sequence))
    assert sequences(retention) == [3, 4, 5]
    assert retention.get(1, 2) is None
    assert retention.retained_bytes == 3 * SIZE_BYTES


def test_frame_larger_than_bytes_max_is_not_retained() -> None:
    retention = RetentionBuffer(RETENTION_S, 3 * SIZE_BYTES)
    retention.add(retained(1))
    retention.add(retained(2, payload=bytes(4 * SIZE_BYTES)))
    assert (sequences(retention), retention.retained_bytes, retention.end) == ([], 0, 2)


def test_frames_past_retention_are_dropped() -> None:
    retention = RetentionBuffer(RETENTION_S, 1 << 20)
    for sequence in range(1, 4):
        retention.add(retained(sequence, received_at=sequence))
    retention.expire(RETENTION_S + 0.9)
    assert sequences(retention) == [1, 2, 3]
    retention.expire(RETENTION_S + 2)
    assert sequences(retention) == [3]
    retention.expire(RETENTION_S + 3)
    assert (sequences(retention), retention.retained_bytes) == ([], 0)


def test_age_on_arrival_counts_toward_retention() -> None:
    retention = RetentionBuffer(RETENTION_S, 1 << 20)
    retention.add(retained(1, received_at=0, age_ms=6000))
    retention.expire(3.9)
    assert sequences(retention) == [1]
    retention.expire(4)
    assert sequences(retention) == []


def test_log_positions_only_grow() -> None:
    retention = RetentionBuffer(RETENTION_S, 1 << 20)
    assert retention.end == 0
    for sequence in range(1, 4):
        retention.add(retained(sequence, received_at=sequence))
    position = retention.end
    retention.expire(RETENTION_S + 2)
    assert retention.end == position == 3
    retention.add(retained(4, received_at=12))
    assert [each.first for each in retention.before(position)] == [3]
    assert [each.first for each in retention.before(position + 1)] == [3, 4]
    assert list(retention.before(2)) == []


def test_copy_has_one_more_hop_and_includes_retention_time_in_age() -> None:
    frame, rest = retained(5, received_at=100, age_ms=250, payload=b"e4").copy(now=101.5)
    assert rest is None
    assert decode_broadcast(frame) == Broadcast(1, 5, 1, (b"e4",), hops=4, age_ms=1750)


def test_copy_of_a_large_frame_shares_its_bytes() -> None:
    original = retained(5, received_at=100, age_ms=250, payload=bytes(SPLIT_FRAME_BYTES_MIN))
    frame, rest = original.copy(now=101.5)
    assert rest is not None
    assert rest.obj is original.frame
    assert decode_broadcast(frame + rest) == Broadcast(1, 5, 1, (bytes(SPLIT_FRAME_BYTES_MIN),), hops=4, age_ms=1750)


@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(0, 12_000), st.integers(0, 200)), max_size=40),
    st.integers(SIZE_BYTES, 600),
)
def test_size_limit_and_indexes_hold_for_any_arrivals(arrivals: list[tuple[float, int, int]], bytes_max: int) -> None:
    retention = RetentionBuffer(RETENTION_S, bytes_max)
    now = 0.0
    for sequence, (pause_s, age_ms, size_bytes) in enumerate(arrivals, 1):
        now += pause_s
        retention.expire(now)
        retention.add(retained(sequence, now, age_ms=age_ms, payload=bytes(size_bytes)))
        held = list(retention.before(retention.end))
        assert retention.retained_bytes == sum(len(each.frame) for each in held) <= bytes_max
        assert retention.end == sequence
        assert [each.first for each in held] == list(range(sequence - len(held) + 1, sequence + 1))
        for each in range(1, sequence + 1):
            assert (retention.get(1, each) is not None) == (each > sequence - len(held))
        assert all(each.received_at > now - RETENTION_S for each in held[:-1])


def test_garbage_collector_leaves_retained_frames_alone() -> None:
    retention = RetentionBuffer(RETENTION_S, 1 << 20)
    for sequence in range(1, 101):
        retention.add(retained(sequence)._replace(author=PeerId(1), received_from=PeerId(2), priority=Priority.HIGH))
        retention.add_single(PeerId(2), sequence, retained(sequence, author=2).frame, 1, 0, 0.0, PeerId(1))
    assert retention.end == 200
    gc.collect()
    assert not any(gc.is_tracked(each) for each in retention._log)
    assert retention.get(1, 1) == retained(1)._replace(received_from=2, priority=Priority.HIGH)


def test_two_frames_with_the_same_messages_are_dropped_one_after_the_other() -> None:
    retention = RetentionBuffer(RETENTION_S, 2 * SIZE_BYTES)
    for sequence in (1, 1, 2, 3):
        retention.add(retained(sequence))
    assert sequences(retention) == [2, 3]
