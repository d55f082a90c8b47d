"""A full disk or a removed directory is reported once, dropped rows are counted exactly, and recording recovers."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from broadloom.record import Tape, TapeWriteError, read
from broadloom.record import tape_file as file_module
from tests.record.tape_kit import (
    CHANNEL,
    ME,
    ManualClock,
    finished_files,
    hidden_files,
    make_tape,
    read_dropped_rows,
    rows,
    send,
)
from tests.small_disk import fill, small_disk
from tests.support import wait_until

__all__ = ["small_disk"]


def test_full_disk_is_reported_once_and_recovered(small_disk: Path) -> None:
    clock, errors = ManualClock(), list[str]()
    tape = make_tape(small_disk, clock, errors.append, file_duration_s=60.0, retry_delay_s=5.0)
    recorder = tape.observer(CHANNEL, ME)
    send(recorder, 10)
    wait_until(lambda: hidden_files(small_disk))
    ballast = fill(small_disk)
    clock.now += 60  # the file is due, and there is no space for its footer
    wait_until(lambda: tape.last_error)
    assert "No space left" in str(tape.last_error)
    assert tape.dropped_rows == 10
    assert hidden_files(small_disk) == []
    fill(small_disk)
    send(recorder, 5, first=11)  # during the retry delay
    wait_until(lambda: tape.dropped_rows == 15)
    clock.now += 5  # the retry fails
    wait_until(lambda: tape.counters.abandoned_files >= 2)
    assert len(errors) == 1
    ballast.unlink()
    clock.now += 5
    wait_until(lambda: hidden_files(small_disk))
    send(recorder, 3, first=16)
    clock.hold()
    clock.release()
    clock.now += 5  # after an error, files are finished early to see whether it works
    wait_until(lambda: tape.last_error is None)
    send(recorder, 4, first=19)
    tape.close()
    assert rows(small_disk, "sequence", kinds=["sent"]) == list(range(16, 23))
    assert sum(gap[0] for gap in read_dropped_rows(small_disk)) == tape.dropped_rows == 15
    assert len(errors) == 1


def test_disk_filling_under_load_accounts_for_every_row(small_disk: Path) -> None:
    """Every row is on the tape or counted in a `rows_dropped` row."""
    clock = ManualClock()
    tape = make_tape(
        small_disk, clock, include_payload=True, batch_rows=100, file_bytes_max=100_000, block_when_full=True
    )
    recorder = tape.observer(CHANNEL, ME)
    for sequence in range(1, 2001):
        recorder.sent(sequence, os.urandom(1000))
    wait_until(lambda: tape.last_error)
    saved = small_disk.parent / "saved"
    shutil.copytree(small_disk, saved, ignore=shutil.ignore_patterns(".*"))
    for path in finished_files(small_disk):
        path.unlink()
    tape.close()
    shutil.copytree(small_disk, saved, dirs_exist_ok=True)
    kept = rows(saved, "sequence", kinds=["sent"])
    assert kept == sorted(set(kept))
    lost = sum(gap[0] for gap in read_dropped_rows(saved))
    assert lost == tape.dropped_rows > 0
    assert len(kept) + lost == 2000


def test_close_on_full_disk_reports_dropped_rows(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    tape = make_tape(small_disk, ManualClock())
    fill(small_disk)
    send(tape.observer(CHANNEL, ME), 10)
    tape.close()
    assert tape.dropped_rows == 10
    assert tape.last_error is not None
    assert "could not report all dropped rows" in caplog.text
    assert finished_files(small_disk) == hidden_files(small_disk) == []


LIMITED = """
import os, resource, signal, sys
from broadloom.protocol import ChannelName
from broadloom.record import Tape, TapeSettings
tape = Tape(sys.argv[1], settings=TapeSettings(include_payload=True, batch_rows=10))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
recorder = tape.observer(ChannelName("test", "tape"), 1)
for sequence in range(1, 101):
    recorder.sent(sequence, os.urandom(1000))
tape.close()
print(tape.dropped_rows, tape.last_error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such limits")
def test_file_size_limit_is_reported(tmp_path: Path) -> None:
    """Needs no mount. The `rows_dropped` row fits within the limit."""
    done = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "100 None"
    assert [gap[0] for gap in read_dropped_rows(tmp_path)] == [100]
    assert done.stderr.count("cannot be written") <= 1


def test_uncreatable_directory_raises_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TapeWriteError, match=r"cannot be written to .*Not a directory"):
        Tape(tmp_path / "file" / "tape")


def test_read_only_directory_raises_at_once(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(TapeWriteError, match="Read-only"):
        Tape(small_disk)


def test_removed_directory_is_recreated(tmp_path: Path) -> None:
    place = tmp_path / "tape"
    clock = ManualClock()
    with make_tape(place, clock) as tape:
        recorder = tape.observer(CHANNEL, ME)
        place.rmdir()
        place.write_text("in the way")
        send(recorder, 2)
        wait_until(lambda: tape.dropped_rows == 2)
        assert tape.last_error is not None
        place.unlink()
        clock.now += 5
        wait_until(lambda: hidden_files(place))
        send(recorder, 2, first=3)
    assert rows(place, "sequence", kinds=["sent"]) == [3, 4]
    assert [gap[0] for gap in read_dropped_rows(place)] == [2]


def test_lost_rows_dropped_record_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file with the `rows_dropped` row fails too: its rows and those it reports are reported again, each once."""
    clock = ManualClock()
    failing = [True]

    def sync_folder(folder: Path) -> None:
        if failing[0] and folder.name.startswith("event_date="):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(file_module, "sync_folder", sync_folder)
    with make_tape(tmp_path, clock, queue_rows_max=5) as tape:
        recorder = tape.observer(CHANNEL, ME)
        clock.hold()
        send(recorder, 8)
        clock.release()
        wait_until(lambda: hidden_files(tmp_path))
        clock.now += 60
        wait_until(lambda: tape.dropped_rows == 8)
        assert finished_files(tmp_path) == []
        failing[0] = False
    assert [gap[0] for gap in read_dropped_rows(tmp_path)] == [8]
    assert read(tmp_path).num_rows == 1
    assert tape.dropped_rows == 8


def test_failing_callback_does_not_stop_tape(tmp_path: Path) -> None:
    def fails(problem: str) -> None:
        raise RuntimeError(problem)

    place = tmp_path / "tape"
    with make_tape(place, ManualClock(), fails) as tape:
        place.rmdir()
        place.write_text("in the way")
        send(tape.observer(CHANNEL, ME), 2)
        wait_until(lambda: tape.last_error)
        place.unlink()
    assert [gap[0] for gap in read_dropped_rows(place)] == [2]


def test_unwritable_rows_drop_only_their_batch(tmp_path: Path) -> None:
    with make_tape(tmp_path, ManualClock()) as tape:
        recorder = tape.observer(CHANNEL, ME)
        recorder.duplicates("many")  # type: ignore[arg-type]
        wait_until(lambda: tape.dropped_rows == 1)
        send(recorder, 2)
    assert rows(tmp_path, "sequence", kinds=["sent"]) == [1, 2]
    assert [gap[0] for gap in read_dropped_rows(tmp_path)] == [1]
