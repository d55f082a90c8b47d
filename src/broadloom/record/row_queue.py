"""The rows that wait for the writer: put by any thread without a lock, taken by one.

The rule: what waits is bounded, in rows and in bytes. When it is full the newest rows are dropped and counted, or
whoever puts them waits, as the settings say.

A deque may be used at both ends by different threads without a lock. An observer puts its row first and looks
afterwards whether there is anything to do about it, so that nothing falls between the end and the row: after it every
row is taken back by whoever put it. Until the end nothing is taken back uncounted, so a tape lacks only the newest rows
of an observer, never one in between that no gap tells of.
"""

import threading
from collections import deque
from collections.abc import Callable

from broadloom.record.dropped_rows import DroppedRows, RowRange
from broadloom.record.rows import DAY_US, OptionalColumns, Row
from broadloom.record.settings import TapeSettings

_WRITER_CHECK_S = 1.0
"""Whoever waits for the writer looks this often whether it is still there."""


class RowQueue:
    def __init__(self, settings: TapeSettings, dropped: DroppedRows, is_writer_alive: Callable[[], bool]) -> None:
        self.rows: deque[Row] = deque()
        self._batch_rows = min(settings.batch_rows, settings.queue_rows_max)
        self.check_at_rows = self._batch_rows
        """An observer that finds so many rows here calls `press`."""
        self.delayed_rows = 0
        """Rows that came after the end, and are on no tape."""
        self.is_closed = False
        """The writer need only write what is there."""
        self._is_ended = False
        """It has: nothing more gets on the tape."""
        self._settings = settings
        self._dropped = dropped
        self._is_writer_alive = is_writer_alive
        self._queued_bytes = 0
        self._space = threading.Condition()
        self._wake = threading.Event()

    # -- for observers

    def check_limits(self, extra: OptionalColumns | None = None) -> None:
        """A row was put that needs attention: it is heavy, or there are many, or it came too late."""
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
        """There is a batch. Until the writer has looked, observers need not call again before the queue is full."""
        with self._space:
            if not self._is_ended:
                self.check_at_rows = self._settings.queue_rows_max + 1
        self._wake.set()

    @property
    def _is_full(self) -> bool:
        return len(self.rows) > self._settings.queue_rows_max or self._queued_bytes > self._settings.queue_bytes_max

    def _wait(self) -> bool:
        """Until the writer has made room; False if it never will."""
        with self._space:
            while self._is_full:
                if self.is_closed or not self._is_writer_alive():
                    return False
                self._space.wait(_WRITER_CHECK_S)
        return True

    def _drop(self) -> None:
        """Take back the newest row: ours, or another thread's that came after it."""
        count = self._count_removed  # asked first: the end may come in between, with a newer row on the tape
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

    # -- for the writer

    def wait_for_rows(self, timeout_s: float) -> None:
        """Until there is a batch, or the end, or for so long."""
        with self._space:
            if not self.is_closed:
                self.check_at_rows = self._batch_rows
        if len(self.rows) < self._batch_rows:
            self._wake.wait(timeout_s)
        self._wake.clear()

    def take(self, limit: int) -> list[Row]:
        """The oldest rows, as many as make a batch, but not more than that."""
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
        """Rows have gone: make their room known."""
        freed_bytes = sum(row[-1].queued_bytes for row in rows if row[-1] is not None)
        with self._space:
            self._queued_bytes -= freed_bytes
            self._space.notify_all()

    # -- the end

    def close(self) -> None:
        """The writer still writes what is there."""
        with self._space:
            self.is_closed = True
            self._space.notify_all()
        self._wake.set()

    def end(self) -> None:
        """The writer has written what was there: whatever else was put came late."""
        with self._space:
            self._is_ended = True
            self.check_at_rows = 0

    def discard_remaining(self) -> None:
        """There is no writer any more. If it came to the end, what is left came late (and whoever put it was just about
        to take it back); else it is lost."""
        count = self._count_removed
        self.end()
        while True:
            try:
                row = self.rows.popleft()
            except IndexError:
                return
            count(row)

    def after_fork(self) -> None:
        """This is a forked child: the rows are its parent's, and whoever held the lock is not here."""
        self._space = threading.Condition()
        self._wake = threading.Event()
        self.rows.clear()
        self.close()
        self.end()
