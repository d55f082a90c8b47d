"""When the writer cannot keep up, rows are dropped and counted exactly, or the recorder blocks."""

import threading
from datetime import UTC, datetime
from pathlib import Path

from broadloom.protocol import ChannelName
from tests.record.tape_kit import (
    CHANNEL,
    ME,
    NOON,
    ManualClock,
    finished_files,
    make_tape,
    read_dropped_rows,
    rows,
    send,
)
from tests.support import wait_until


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_rows_over_queue_limit_are_dropped_and_counted(tmp_path: Path) -> None:
    clock = ManualClock()
    with make_tape(tmp_path, clock, queue_rows_max=100) as tape:
        recorder = tape.observer(CHANNEL, ME)
        clock.hold()
        send(recorder, 100)
        assert tape.dropped_rows == 0
        clock.now = NOON + 1
        send(recorder, 30, first=101)
        clock.now = NOON + 2
        send(recorder, 7, first=131)
        assert tape.dropped_rows == 37
        clock.release()
        wait_until(lambda: not tape._queue.rows)
        send(recorder, 3, first=138)
    assert rows(tmp_path, "sequence", kinds=["sent"]) == [*range(1, 101), 138, 139, 140]
    assert read_dropped_rows(tmp_path) == [(37, at(NOON + 1), at(NOON + 2), tape.run_id, None)]
    assert tape.counters.rows == 103


def test_dropped_rows_are_counted_by_channel_and_day(tmp_path: Path) -> None:
    clock = ManualClock()
    other = ChannelName("test", "other")
    with make_tape(tmp_path, clock, queue_rows_max=10) as tape:
        clock.hold()
        send(tape.observer(CHANNEL, ME), 12)
        send(tape.observer(other, ME), 4)
        clock.now += 86_400
        send(tape.observer(CHANNEL, ME), 5)
        clock.release()
    assert [gap[0] for gap in read_dropped_rows(tmp_path, channel=CHANNEL)] == [2, 5]
    assert [gap[0] for gap in read_dropped_rows(tmp_path, channel=other)] == [4]
    assert len(finished_files(tmp_path)) == 3
    assert tape.dropped_rows == 11


def test_queued_payload_is_bounded(tmp_path: Path) -> None:
    clock = ManualClock()
    with make_tape(tmp_path, clock, include_payload=True, queue_bytes_max=10_000) as tape:
        recorder = tape.observer(CHANNEL, ME)
        clock.hold()
        send(recorder, 15, data=bytes(1000))
        assert tape.dropped_rows == 5
        clock.release()
        wait_until(lambda: not tape._queue.rows)
        send(recorder, 10, first=16, data=bytes(1000))
    assert rows(tmp_path, "sequence", kinds=["sent"]) == [*range(1, 11), *range(16, 26)]
    assert [gap[0] for gap in read_dropped_rows(tmp_path)] == [5]


def test_batch_of_large_rows_is_bounded(tmp_path: Path) -> None:
    with make_tape(tmp_path, ManualClock(), include_payload=True, batch_bytes_max=5000, row_group_bytes_max=1) as tape:
        send(tape.observer(CHANNEL, ME), 100, data=bytes(1000))
    assert rows(tmp_path, "sequence") == list(range(1, 101))
    assert tape.dropped_rows == 0


def test_simulation_blocks_when_queue_is_full(tmp_path: Path) -> None:
    clock = ManualClock()
    with make_tape(tmp_path, clock, queue_rows_max=50, block_when_full=True) as tape:
        recorder = tape.observer(CHANNEL, ME)
        clock.hold()
        thread = threading.Thread(target=send, args=(recorder, 1000))
        thread.start()
        clock.release()
        thread.join()
    assert rows(tmp_path, "sequence") == list(range(1, 1001))
    assert tape.dropped_rows == 0


def test_blocked_recorder_continues_when_tape_is_closed(tmp_path: Path) -> None:
    clock = ManualClock()
    tape = make_tape(tmp_path, clock, queue_rows_max=50, block_when_full=True)
    clock.hold()
    talker = threading.Thread(target=send, args=(tape.observer(CHANNEL, ME), 60))
    talker.start()
    wait_until(lambda: len(tape._queue.rows) > 50)
    closer = threading.Thread(target=tape.close)
    closer.start()
    talker.join()
    clock.release()
    closer.join()
    assert rows(tmp_path, "sequence", kinds=["sent"]) == list(range(1, 51))
    assert (tape.dropped_rows, tape.delayed_rows) == (10, 0)
    assert [count for count, *_ in read_dropped_rows(tmp_path)] == [10]
