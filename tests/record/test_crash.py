"""What is on disk after processes crash, fork or exit."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pytest

from broadloom.record import read
from tests.record.tape_kit import (
    CHANNEL,
    ME,
    ManualClock,
    finished_files,
    hidden_files,
    make_tape,
    rows,
    send,
)
from tests.support import wait_until

RECORDS = """
import sys, threading
from broadloom.protocol import ChannelName
from broadloom.record import Tape, TapeSettings
tape = Tape(sys.argv[1], settings=TapeSettings(poll_interval_s=0.01, file_duration_s=0.05))
recorder = tape.observer(ChannelName("test", "tape"), 1)
sequence = 0
while tape.counters.files < 3:
    sequence += 1
    recorder.sent(sequence, b"")
    threading.Event().wait(0.0005)
print(flush=True)
while True:
    sequence += 1
    recorder.sent(sequence, b"")
"""

ENDS = """
import sys
from broadloom.protocol import ChannelName
from broadloom.record import Tape
recorder = Tape(sys.argv[1]).observer(ChannelName("test", "tape"), 1)
for sequence in range(1, 101):
    recorder.sent(sequence, b"")
{end}
"""

FORKS = """
import os, sys
from broadloom.protocol import ChannelName
from broadloom.record import Tape, TapeSettings
settings = TapeSettings(batch_rows=10, row_group_bytes_max=1, block_when_full=True, queue_rows_max=20)
tape = Tape(sys.argv[1], settings=settings)
recorder = tape.observer(ChannelName("test", "tape"), 1)
for sequence in range(1, 101):
    recorder.sent(sequence, b"")
child = os.fork()
if child == 0:
    for sequence in range(1000):
        recorder.sent(sequence, b"not here")
    tape.close()
    sys.exit(tape.delayed_rows != 1000)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
for sequence in range(101, 201):
    recorder.sent(sequence, b"")
tape.close()
"""


@pytest.fixture
def no_nameless_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, and on file systems without `O_TMPFILE`."""
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)


@pytest.mark.parametrize("prefix", ["", "import os; os.__dict__.pop('O_TMPFILE', None)"])
def test_kill_loses_only_unfinished_file(tmp_path: Path, caplog: pytest.LogCaptureFixture, prefix: str) -> None:
    with subprocess.Popen([sys.executable, "-c", prefix + RECORDS, tmp_path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    kept = rows(tmp_path, "sequence")
    assert len(finished_files(tmp_path)) >= 3
    assert kept == list(range(1, len(kept) + 1))
    left = hidden_files(tmp_path)
    assert not left or prefix
    # Other programs read the folder as it is; polars reads whole folders only where nothing is left.
    files = f"{tmp_path}/**/*.parquet"
    assert duckdb.read_parquet(files).aggregate("count(*)").fetchall() == [(len(kept),)]
    assert pl.read_parquet(files if left else tmp_path).height == len(kept)
    with make_tape(tmp_path, ManualClock()) as tape:
        assert [(each.path, each.is_removed) for each in tape.stale_files] == [(path, True) for path in left]
        assert all(str(path) in caplog.text for path in left)
    assert hidden_files(tmp_path) == []
    assert rows(tmp_path, "sequence") == kept


def test_unfinished_file_of_running_process_is_kept(tmp_path: Path, no_nameless_files: None) -> None:
    with make_tape(tmp_path, ManualClock()) as living:
        send(living.observer(CHANNEL, ME), 3)
        (path,) = wait_until(lambda: hidden_files(tmp_path))
        with make_tape(tmp_path, ManualClock()) as other:
            assert other.stale_files == [(path, False)]
        assert hidden_files(tmp_path) == [path]
    assert rows(tmp_path, "sequence") == [1, 2, 3]


def test_tape_needs_no_proc_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*_arguments: object, **_options: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "no /proc")

    monkeypatch.setattr(os, "link", no_link)
    with make_tape(tmp_path, ManualClock()) as tape:
        send(tape.observer(CHANNEL, ME), 3)
    assert rows(tmp_path, "sequence") == [1, 2, 3]
    assert hidden_files(tmp_path) == []


@pytest.mark.parametrize("suffix", ["unfinished", "parquet"])
def test_stale_file_is_removed(tmp_path: Path, suffix: str) -> None:
    """Also those of earlier versions, which were named `.parquet`."""
    with make_tape(tmp_path, ManualClock()) as tape:
        send(tape.observer(CHANNEL, ME), 3)
    (path,) = finished_files(tmp_path)
    dead = path.with_name(f".20270115T120000-dead-000001.{suffix}")
    dead.write_bytes(b"PAR1 and no end")
    assert rows(tmp_path, "sequence") == [1, 2, 3]
    with make_tape(tmp_path, ManualClock()) as tape:
        assert tape.stale_files == [(dead, True)]
    assert not dead.exists()


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise RuntimeError"])
def test_exiting_program_finishes_its_tape(tmp_path: Path, end: str) -> None:
    done = subprocess.run([sys.executable, "-c", ENDS.format(end=end), tmp_path], capture_output=True, check=False)
    assert b"Exception ignored" not in done.stderr
    assert rows(tmp_path, "sequence") == list(range(1, 101))
    assert hidden_files(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_child_does_not_write_tape_of_parent(tmp_path: Path) -> None:
    # Python 3.12 and newer warn about forking a process with threads, which is what this test is about.
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", FORKS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(tmp_path, "sequence") == list(range(1, 201))
    assert b"not here" not in b"".join(path.read_bytes() for path in finished_files(tmp_path))
    assert read(tmp_path).num_rows == 200
