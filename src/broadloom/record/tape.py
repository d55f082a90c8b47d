"""`Tape`: recorders on one side, one writer thread on the other, and a queue in between.

Recording never harms the channel. Rows that do not fit into the queue are dropped, counted and reported in a
`rows_dropped` row (in a simulation, the simulation waits instead). Disk errors stay in the writer thread. See
docs/tape.md for the guarantees.
"""

import atexit
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from weakref import WeakSet

from broadloom.protocol import ChannelName
from broadloom.protocol.identity import Identity
from broadloom.record.dropped_rows import DroppedRows
from broadloom.record.recorder import Describe, NamedPeer, Recorder, payload_metadata
from broadloom.record.row_queue import RowQueue
from broadloom.record.settings import TapeSettings
from broadloom.record.tape_writer import TapeCounters, TapeWriter
from broadloom.record.unfinished_file import StaleFile, remove_stale_files
from broadloom.wire import PeerId

logger = logging.getLogger("broadloom.record")


class TapeWriteError(OSError):
    """A tape cannot be written to this directory."""


class Tape:
    """Records any number of peers of one process. Use it with `with`, or `close` it; it is also closed at exit."""

    def __init__(
        self,
        directory: Path | str,
        *,
        settings: TapeSettings | None = None,
        wall_clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        on_error: Callable[[str], None] | None = None,
    ) -> None:
        """`wall_clock` is the Unix time of events (virtual in a simulation); `monotonic` measures the age of files.
        `on_error` is called in the writer thread when writing starts to fail, once until it recovers."""
        self.directory = Path(directory)
        self.settings = settings or TapeSettings()
        self.run_id = f"{datetime.fromtimestamp(wall_clock(), UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        """Unique name of this recording."""
        _check_writable(self.directory, self.run_id)
        self.stale_files: list[StaleFile] = remove_stale_files(self.directory)
        """Unfinished files found in the directory."""
        self._wall_clock = wall_clock
        self._dropped = DroppedRows()
        self._writer = TapeWriter(self.directory, self.run_id, self.settings, monotonic, self._dropped, on_error)
        self._thread = threading.Thread(target=self._write, name="broadloom-tape", daemon=True)
        self._queue = RowQueue(self.settings, self._dropped, self._thread.is_alive)
        self._close_lock = threading.RLock()
        self._thread.start()
        atexit.register(self.close)
        _tapes.add(self)

    def observer(
        self,
        channel: ChannelName,
        me: PeerId,
        *,
        name: str = "",
        identity: Identity | None = None,
        describe: Describe | None = payload_metadata,
    ) -> Recorder:
        """A recorder for one peer. `name` is what it calls itself; that on its ticket (`identity`) comes first.
        `describe` reads metadata from each message sent or delivered; the default recognizes group messages."""
        if not 0 <= me < 1 << 64:
            raise ValueError(f"not a 64-bit peer id: {me}")
        return Recorder(
            self._queue,
            self._wall_clock,
            channel.id.hex(),
            me,
            NamedPeer.of(identity, name),
            describe,
            self.settings.include_payload,
        )

    @property
    def last_error(self) -> str | None:
        """Why the tape cannot be written at the moment; None if it can."""
        return self._writer.last_error

    @property
    def counters(self) -> TapeCounters:
        return self._writer.counters

    @property
    def dropped_rows(self) -> int:
        """Rows dropped so far, because of a full queue or disk errors."""
        return self._dropped.rows

    @property
    def delayed_rows(self) -> int:
        """Rows recorded after `close`. They are not on the tape, and no `rows_dropped` row reports them."""
        return self._queue.delayed_rows

    def close(self) -> None:
        """Finish all files. Later events are only counted."""
        with self._close_lock:
            if not self._queue.is_closed:
                self._queue.close()
                atexit.unregister(self.close)
            if threading.current_thread() is not self._thread:
                self._thread.join()
                self._queue.discard_remaining()

    def __enter__(self) -> "Tape":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def after_fork(self) -> None:
        """In a forked child, which has no writer thread: close the tape here; it continues in the parent."""
        self._close_lock = threading.RLock()
        self._dropped.after_fork()
        self._queue.after_fork()
        self._writer.after_fork()
        atexit.unregister(self.close)

    def _write(self) -> None:
        """The writer thread."""
        queue, writer = self._queue, self._writer
        try:
            while not queue.is_closed:
                queue.wait_for_rows(self.settings.poll_interval_s)
                self._write_queued()
                writer.tick()
            self._write_queued()
            queue.end()
            writer.finish_all()
        except Exception as problem:  # a bug: the channel continues, and the queue counts what it drops
            logger.exception("the tape writer failed")
            writer.last_error = f"the tape writer failed: {problem!r}"
        if self._dropped.unreported:
            logger.error("the tape could not report all dropped rows; dropped in total: %d", self.dropped_rows)

    def _write_queued(self) -> None:
        """Write what is queued now, in batches. Recorders may be faster, so rows added meanwhile wait."""
        left = len(self._queue.rows)
        while rows := self._queue.take(left):
            left -= len(rows)
            self._writer.write(rows)
            self._writer.tick()


_tapes: "WeakSet[Tape]" = WeakSet()


def _after_fork() -> None:
    for tape in list(_tapes):
        tape.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _check_writable(directory: Path, run_id: str) -> None:
    probe = directory / f".{run_id}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with probe.open("xb") as file:
            file.write(b"broadloom")
            file.flush()
            os.fsync(file.fileno())
        probe.unlink()
    except OSError as problem:
        raise TapeWriteError(f"a tape cannot be written to {directory}: {problem.strerror or problem}") from problem
