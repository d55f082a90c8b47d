"""`RowQueue`: rows waiting for the writer. Any thread appends without a lock; one thread consumes.

The queue is bounded in rows and in bytes. When it is full, the newest rows are dropped and counted, or the recorder
blocks, depending on `block_when_full`.

Both ends of a deque can be used by different threads without a lock. A recorder appends its row first and checks the
limits afterwards, so no row slips in between the end of the queue and the check: a row appended after the end is
removed by the recorder that appended it. Before the end, no row is removed without being counted. So every row missing
from a tape is covered by a `rows_dropped` row, except the newest rows of a recorder that outlives its tape.
"""

import threading
from collections import deque
from collections.abc import Callable

from broadloom.record.dropped_rows import DroppedRows, RowRange
from broadloom.record.rows import OptionalColumns, Row
from broadloom.record.schema import DAY_US
from broadloom.record.settings import TapeSettings

_WRITER_CHECK_S = 1.0
"""How often a blocked recorder checks that the writer is alive."""


class RowQueue:
    def __init__(self, settings: TapeSettings, dropped: DroppedRows, is_writer_alive: Callable[[], bool]) -> None:
        self.rows: deque[Row] = deque()
        self._batch_rows = min(settings.batch_rows, settings.queue_rows_max)
        self.check_at_rows = self._batch_rows
        """A recorder that finds this many rows calls `check_limits`."""
        self.delayed_rows = 0
        """Rows appended after the end. They are not on the tape."""
        self.is_closed = False
        """The writer writes what is queued, and ends."""
        self._is_ended = False
        """The writer has ended: no further row gets onto the tape."""
        self._settings = settings
        self._dropped = dropped
        self._is_writer_alive = is_writer_alive
        self._queued_bytes = 0
        self._space = threading.Condition()
        self._wake = threading.Event()

    # -- called by recorders

    def check_limits(self, extra: OptionalColumns | None = None) -> None:
        """Called after a row that is large, that exceeds `check_at_rows`, or that was appended after the end."""
        if extra is not None and extra.queued_bytes:
            with self._space:
                self._queued_bytes += extra.queued_bytes
        if self._is_ended:
            self._drop()
        elif self._is_full:
            self._wake.set()
            if not (self._settings.block_when_full and self._wait()):
                self._drop()
        elif len(self.rows) >= self._batch_rows or self._queued_bytes >= self._settings.batch_bytes_max:
            self._wake_writer()

    def _wake_writer(self) -> None:
        """There is a batch. Until the writer has taken it, recorders need not call again before the queue is full."""
        with self._space:
            if not self._is_ended:
                self.check_at_rows = self._settings.queue_rows_max + 1
        self._wake.set()

    @property
    def _is_full(self) -> bool:
        return len(self.rows) > self._settings.queue_rows_max or self._queued_bytes > self._settings.queue_bytes_max

    def _wait(self) -> bool:
        """Wait until the writer has made room; False if it never will."""
        with self._space:
            while self._is_full:
                if self.is_closed or not self._is_writer_alive():
                    return False
                self._space.wait(_WRITER_CHECK_S)
        return True

    def _drop(self) -> None:
        """Remove the newest row: ours, or one that another thread appended after it."""
        count = self._count_removed  # evaluated first: the end may come in between, with a newer row on the tape
        try:
            row = self.rows.pop()
        except IndexError:
            return  # the writer has just taken it
        self._release([row])
        count(row)

    @property
    def _count_removed(self) -> Callable[[Row], None]:
        return self._count_delayed if self._is_ended else self._count_dropped

    def _count_delayed(self, _: Row) -> None:
        with self._space:
            self.delayed_rows += 1

    def _count_dropped(self, row: Row) -> None:
        self._dropped.add((row[2].channel, row[1] // DAY_US), RowRange(1, row[1], row[1]))

    # -- called by the writer

    def wait_for_rows(self, timeout_s: float) -> None:
        """Wait for a batch, the end or the timeout."""
        with self._space:
            if not self.is_closed:
                self.check_at_rows = self._batch_rows
        if len(self.rows) < self._batch_rows:
            self._wake.wait(timeout_s)
        self._wake.clear()

    def take(self, limit: int) -> list[Row]:
        """Remove and return the oldest rows: at most `limit`, and at most one batch."""
        limit = min(limit, self._batch_rows)
        rows: list[Row] = []
        taken_bytes = 0
        take = self.rows.popleft
        try:
            while len(rows) < limit and taken_bytes < self._settings.batch_bytes_max:
                row = take()
                rows.append(row)
                if row[-1] is not None:
                    taken_bytes += row[-1].queued_bytes
        except IndexError:
            pass
        self._release(rows)
        return rows

    def _release(self, rows: list[Row]) -> None:
        """Return the space of removed rows."""
        freed_bytes = sum(row[-1].queued_bytes for row in rows if row[-1] is not None)
        with self._space:
            self._queued_bytes -= freed_bytes
            self._space.notify_all()

    # -- the end

    def close(self) -> None:
        """Let the writer write what is queued, and end."""
        with self._space:
            self.is_closed = True
            self._space.notify_all()
        self._wake.set()

    def end(self) -> None:
        """Called when the writer has written everything. Rows appended from now on are delayed."""
        with self._space:
            self._is_ended = True
            self.check_at_rows = 0

    def discard_remaining(self) -> None:
        """Called without a running writer. Remaining rows are delayed if it ended normally (their recorders were about
        to remove them), and dropped otherwise."""
        count = self._count_removed
        self.end()
        while True:
            try:
                row = self.rows.popleft()
            except IndexError:
                return
            count(row)

    def after_fork(self) -> None:
        """In a forked child: the rows belong to the parent, and the thread that may hold the lock is missing."""
        self._space = threading.Condition()
        self._wake = threading.Event()
        self.rows.clear()
        self.close()
        self.end()
