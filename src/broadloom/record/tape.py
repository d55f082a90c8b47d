"""The tape: observers on one side, one thread that writes files on the other, a queue between them.

The rule: recording never harms the channel. What the queue cannot hold is dropped and counted, and a gap row tells how
much (or, in a simulation, time waits for the writer). Trouble with the disk is the writer's alone. `docs/tape.md` says
what is guaranteed.
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
from broadloom.record.dropped_rows import DroppedRows
from broadloom.record.file_locks import StaleFile, remove_stale_files
from broadloom.record.recorder import Describe, Recorder, payload_metadata
from broadloom.record.row_queue import RowQueue
from broadloom.record.settings import TapeSettings
from broadloom.record.tape_writer import TapeCounters, TapeWriter
from broadloom.wire import PeerId

logger = logging.getLogger("broadloom.record")


class TapeWriteError(OSError):
    """A tape cannot be written in this directory."""


class Tape:
    """Records any number of peers of one process. Close it, or use it in a `with`; a program's end closes it too."""

    def __init__(
        self,
        directory: Path | str,
        *,
        settings: TapeSettings | None = None,
        wall_clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        on_error: Callable[[str], None] | None = None,
    ) -> None:
        """`wall_clock` tells the time of events (seconds since 1970, UTC; virtual in a simulation), `monotonic` the age
        of files. `on_problem` is told of trouble, once each time it begins, in the writer's thread."""
        self.directory = Path(directory)
        self.settings = settings or TapeSettings()
        self.run_id = f"{datetime.fromtimestamp(wall_clock(), UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        """Names this recording: no two are the same."""
        _check_writable(self.directory, self.run_id)
        self.stale_files: list[StaleFile] = remove_stale_files(self.directory)
        """Unfinished files that were found."""
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
        self, channel: ChannelName, me: PeerId, *, name: str = "", describe: Describe | None = payload_metadata
    ) -> Recorder:
        """Records one peer. `name` is who it is to people (for bills); `describe` reads group, message, parent and
        topic in a payload, and is called for each message sent and delivered: messages of groups, unless told."""
        if not 0 <= me < 1 << 64:
            raise ValueError(f"a peer id has 64 bits, {me} has not")
        return Recorder(
            self._queue, self._wall_clock, channel.id.hex(), me, name, describe, self.settings.include_payload
        )

    @property
    def last_error(self) -> str | None:
        """What keeps the tape from being written at present."""
        return self._writer.last_error

    @property
    def counters(self) -> TapeCounters:
        """Finished files, and what is in them."""
        return self._writer.counters

    @property
    def dropped_rows(self) -> int:
        """Rows lost so far, to a full queue or to trouble."""
        return self._dropped.rows

    @property
    def delayed_rows(self) -> int:
        """Rows that came after the end; they are on no tape, and no gap tells of them."""
        return self._queue.delayed_rows

    def close(self) -> None:
        """Finish all files. What observers tell from now on is only counted."""
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
        """This is a forked child, which has the tape but not its writer: here it is closed, there it goes on."""
        self._close_lock = threading.RLock()
        self._dropped.after_fork()
        self._queue.after_fork()
        self._writer.after_fork()
        atexit.unregister(self.close)

    def _write(self) -> None:
        """The writer's thread."""
        queue, files = self._queue, self._writer
        try:
            while not queue.is_closed:
                queue.wait_for_rows(self.settings.poll_interval_s)
                self._write_queued()
                files.tick()
            self._write_queued()
            queue.end()
            files.finish_all()
        except Exception as problem:  # a fault of ours: the channel goes on, and the queue counts what it drops
            logger.exception("the tape's writer has failed")
            files.last_error = f"the writer has failed: {problem!r}"
        if self._dropped.unreported:
            logger.error("the tape ends with lost rows that no gap row tells of; lost in all: %d", self.dropped_rows)

    def _write_queued(self) -> None:
        """All that is there now, a batch at a time; observers may be as fast as this."""
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
    """Better now, with a clear word, than later."""
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
