"""Files: their location, rotation and contents."""

import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from broadloom.protocol import ChannelName
from broadloom.record import SCHEMA, TapeSettings, read
from broadloom.record.arrow_import import pc, pq
from tests.record.tape_kit import (
    CHANNEL,
    DAY,
    FOLDER,
    ME,
    NOON,
    ManualClock,
    finished_files,
    hidden_files,
    make_tape,
    rows,
    send,
)
from tests.support import wait_until


def test_file_is_hidden_until_complete(tmp_path: Path) -> None:
    tape = make_tape(tmp_path, ManualClock())
    send(tape.observer(CHANNEL, ME), 3)
    (path,) = wait_until(lambda: hidden_files(tmp_path))
    assert path.parent == tmp_path / FOLDER / f"event_date={DAY}"
    assert finished_files(tmp_path) == []
    tape.close()
    assert finished_files(tmp_path) == [path.with_name(f"{tape.run_id}-000001.parquet")]
    assert hidden_files(tmp_path) == []
    assert rows(tmp_path, "sequence") == [1, 2, 3]


def test_rows_after_close_count_as_delayed(tmp_path: Path) -> None:
    tape = make_tape(tmp_path, ManualClock())
    recorder = tape.observer(CHANNEL, ME)
    send(recorder, 3)
    tape.close()
    send(recorder, 5)
    tape.close()
    assert rows(tmp_path, "sequence") == [1, 2, 3]
    assert (tape.delayed_rows, tape.dropped_rows, tape.counters.rows) == (5, 0, 3)


def test_empty_tape_creates_no_file(tmp_path: Path) -> None:
    with make_tape(tmp_path, ManualClock()) as tape:
        tape.observer(CHANNEL, ME)
    assert list(tmp_path.iterdir()) == []
    assert read(tmp_path).num_rows == 0


def test_idle_file_is_finished_after_file_duration(tmp_path: Path) -> None:
    clock = ManualClock()
    with make_tape(tmp_path, clock, file_duration_s=60.0) as tape:
        recorder = tape.observer(CHANNEL, ME)
        send(recorder, 2)
        wait_until(lambda: hidden_files(tmp_path))
        clock.now += 59
        clock.hold()  # the writer has checked the queue
        clock.release()
        assert finished_files(tmp_path) == []
        clock.now += 1
        wait_until(lambda: finished_files(tmp_path) and not hidden_files(tmp_path))
        assert rows(tmp_path, "sequence") == [1, 2]
        send(recorder, 1, first=3)
        wait_until(lambda: hidden_files(tmp_path))
        clock.now += 60
        wait_until(lambda: len(finished_files(tmp_path)) == 2)
    assert rows(tmp_path, "sequence") == [1, 2, 3]


def test_file_is_finished_at_maximum_size(tmp_path: Path) -> None:
    with make_tape(tmp_path, ManualClock(), file_bytes_max=20_000, batch_rows=100, include_payload=True) as tape:
        recorder = tape.observer(CHANNEL, ME)
        for sequence in range(1, 1001):
            recorder.sent(sequence, sequence.to_bytes(4, "big") * 25)
    files = finished_files(tmp_path)
    assert len(files) > 1
    assert all(path.stat().st_size < 60_000 for path in files)
    assert rows(tmp_path, "sequence") == list(range(1, 1001))
    assert tape.counters.bytes == sum(path.stat().st_size for path in files)


def test_file_contains_rows_of_one_day(tmp_path: Path) -> None:
    clock = ManualClock()
    with make_tape(tmp_path, clock, poll_interval_s=3600.0) as tape:
        recorder = tape.observer(CHANNEL, ME)
        clock.now = NOON + 43_199.5
        send(recorder, 2)
        clock.now += 1
        send(recorder, 2, first=3)
        clock.now -= 1  # the clock was set back
        send(recorder, 1, first=5)
    found = [
        (path.parent.name, pq.read_table(path, partitioning=None)["sequence"].to_pylist())
        for path in finished_files(tmp_path)
    ]
    assert found == [("event_date=2027-01-15", [1, 2, 5]), ("event_date=2027-01-16", [3, 4])]
    assert sorted(rows(tmp_path, "ordinal", "sequence")) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


def test_file_of_previous_day_is_finished_at_midnight(tmp_path: Path) -> None:
    clock = ManualClock()
    with make_tape(tmp_path, clock, file_duration_s=1e9) as tape:
        recorder = tape.observer(CHANNEL, ME)
        send(recorder, 1)
        wait_until(lambda: hidden_files(tmp_path))
        clock.now += 86_400
        send(recorder, 1, first=2)
        wait_until(lambda: finished_files(tmp_path))
        assert rows(tmp_path, "sequence") == [1]


def test_open_files_are_bounded_across_channels(tmp_path: Path) -> None:
    channels = [ChannelName("test", f"{number}") for number in range(6)]
    with make_tape(tmp_path, ManualClock(), files_open_max=2) as tape:
        for turn in (1, 2):
            for channel in channels:
                send(tape.observer(channel, ME), 1, first=turn)
                folder = tmp_path / f"channel={channel.id.hex()[:16]}"
                wait_until(partial(hidden_files, folder))
                assert len(hidden_files(tmp_path)) <= 2
    for channel in channels:
        assert rows(tmp_path, "sequence", channel=channel) == [1, 2]
    assert len(finished_files(tmp_path)) == 12


def test_small_batches_share_row_group(tmp_path: Path) -> None:
    with make_tape(tmp_path, ManualClock(), batch_rows=1) as tape:
        send(tape.observer(CHANNEL, ME), 500)
    (path,) = finished_files(tmp_path)
    assert pq.ParquetFile(path).metadata.num_row_groups == 1
    assert rows(tmp_path, "sequence") == list(range(1, 501))


def test_buffered_rows_of_file_are_bounded(tmp_path: Path) -> None:
    with make_tape(tmp_path, ManualClock(), batch_rows=100, row_group_bytes_max=50_000) as tape:
        send(tape.observer(CHANNEL, ME), 5000)
    (path,) = finished_files(tmp_path)
    assert pq.ParquetFile(path).metadata.num_row_groups > 3
    assert rows(tmp_path, "sequence") == list(range(1, 5001))


def test_buffered_rows_of_all_files_are_bounded(tmp_path: Path) -> None:
    channels = [ChannelName("test", f"{number}") for number in range(3)]
    with make_tape(tmp_path, ManualClock(), batch_rows=100, buffered_bytes_max=30_000) as tape:
        recorders = [tape.observer(channel, ME) for channel in channels]
        for sequence in range(1, 1001):
            for recorder in recorders:
                recorder.sent(sequence, b"")
    assert sum(pq.ParquetFile(path).metadata.num_row_groups for path in finished_files(tmp_path)) > 6
    for channel in channels:
        assert rows(tmp_path, "sequence", channel=channel) == list(range(1, 1001))


def test_observers_in_many_threads_lose_no_row(tmp_path: Path) -> None:
    with make_tape(tmp_path, ManualClock(), batch_rows=64, queue_rows_max=256, block_when_full=True) as tape:
        recorders = [tape.observer(CHANNEL, peer) for peer in range(8)]
        threads = [threading.Thread(target=send, args=(recorder, 3000)) for recorder in recorders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert tape.dropped_rows == 0
    table = read(tmp_path, columns=["ordinal", "peer", "sequence"])
    assert table["ordinal"].to_pylist() == list(range(24_000))
    for observer in range(8):
        mine = table.filter(pc.equal(table["peer"], f"{observer:016x}"))
        assert mine["sequence"].to_pylist() == list(range(1, 3001))


def test_close_during_traffic_accounts_for_every_row(tmp_path: Path) -> None:
    tape = make_tape(tmp_path, ManualClock(), batch_rows=16)
    begun = threading.Barrier(5)

    def talk(peer: int) -> None:
        recorder = tape.observer(CHANNEL, peer)
        begun.wait()
        send(recorder, 5000)

    threads = [threading.Thread(target=talk, args=(peer,)) for peer in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    tape.close()
    for thread in threads:
        thread.join()
    tape.close()
    assert read(tmp_path).num_rows + tape.delayed_rows == 20_000
    assert tape.dropped_rows == 0
    heard: dict[str, list[int]] = {}
    for observer, sequence in rows(tmp_path, "peer", "sequence"):
        heard.setdefault(observer, []).append(sequence)
    assert all(sequences == list(range(1, len(sequences) + 1)) for sequences in heard.values())


def test_row_put_during_close_counts_as_delayed(tmp_path: Path) -> None:
    """Its recorder has not checked yet whether the tape is closed when the tape discards the remaining rows."""
    tape = make_tape(tmp_path, ManualClock())
    recorder = tape.observer(CHANNEL, 1)
    send(recorder, 3)
    put = tape._queue.rows[-1]
    tape.close()
    tape._queue.rows.append(put)
    tape.close()
    tape._queue.check_limits()
    assert (read(tmp_path).num_rows, tape.delayed_rows, tape.dropped_rows) == (3, 1, 0)


def test_tape_is_readable_with_hive_partitions(tmp_path: Path) -> None:
    import pyarrow.dataset as ds  # type: ignore[import-untyped]

    clock = ManualClock()
    tape = make_tape(tmp_path, clock)
    send(tape.observer(ChannelName("test", "other"), ME), 10)
    recorder = tape.observer(CHANNEL, ME)
    send(recorder, 10)
    clock.now += 86_400
    send(recorder, 5, first=11)
    tape.close()
    with make_tape(tmp_path, clock) as unfinished:
        send(unfinished.observer(CHANNEL, ME), 1)
        wait_until(lambda: hidden_files(tmp_path))
        table = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert Counter(table["event_date"].to_pylist()) == {"2027-01-15": 20, "2027-01-16": 5}
    assert len(set(table["channel"].to_pylist())) == 2
    assert table.schema.names == [*SCHEMA.names, "channel", "event_date"]
    assert table.schema.field("event_time").type == SCHEMA.field("event_time").type


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(ValueError, match="file_duration_s must be greater than 0"):
        TapeSettings(file_duration_s=0)
