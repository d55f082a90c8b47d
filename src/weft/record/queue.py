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

from weft.record.lost import Lost, Tally
from weft.record.rows import DAY_US, Extra, Row
from weft.record.settings import TapeSettings

_WAIT_S = 1.0
"""Whoever waits for the writer looks this often whether it is still there."""


class Queue:
    def __init__(self, settings: TapeSettings, lost: Lost, has_writer: Callable[[], bool]) -> None:
        self.rows: deque[Row] = deque()
        self._batch_rows = min(settings.batch_rows, settings.queue_rows_max)
        self.pressed_rows = self._batch_rows
        """An observer that finds so many rows here calls `press`."""
        self.late_rows = 0
        """Rows that came after the end, and are on no tape."""
        self.closed = False
        """The writer need only write what is there."""
        self._ended = False
        """It has: nothing more gets on the tape."""
        self._settings = settings
        self._lost = lost
        self._has_writer = has_writer
        self._held_bytes = 0
        self._room = threading.Condition()
        self._wake = threading.Event()

    # -- for observers

    def press(self, extra: Extra | None = None) -> None:
        """A row was put that needs attention: it is heavy, or there are many, or it came too late."""
        if extra is not None and extra.held_bytes:
            with self._room:
                self._held_bytes += extra.held_bytes
        if self._ended:
            self._drop()
        elif self._is_full:
            self._wake.set()
            if not (self._settings.wait_when_full and self._wait()):
                self._drop()
        elif len(self.rows) >= self._batch_rows or self._held_bytes >= self._settings.batch_bytes_max:
            self._call_writer()

    def _call_writer(self) -> None:
        """There is a batch. Until the writer has looked, observers need not call again before the queue is full."""
        with self._room:
            if not self._ended:
                self.pressed_rows = self._settings.queue_rows_max + 1
        self._wake.set()

    @property
    def _is_full(self) -> bool:
        return len(self.rows) > self._settings.queue_rows_max or self._held_bytes > self._settings.queue_bytes_max

    def _wait(self) -> bool:
        """Until the writer has made room; False if it never will."""
        with self._room:
            while self._is_full:
                if self.closed or not self._has_writer():
                    return False
                self._room.wait(_WAIT_S)
        return True

    def _drop(self) -> None:
        """Take back the newest row: ours, or another thread's that came after it."""
        count = self._count_gone  # asked first: the end may come in between, with a newer row on the tape
        try:
            row = self.rows.pop()
        except IndexError:
            return  # the writer has just taken it
        self._release([row])
        count(row)

    @property
    def _count_gone(self) -> Callable[[Row], None]:
        return self._count_late if self._ended else self._count_lost

    def _count_late(self, _: Row) -> None:
        with self._room:
            self.late_rows += 1

    def _count_lost(self, row: Row) -> None:
        self._lost.add((row[2].channel, row[1] // DAY_US), Tally(1, row[1], row[1]))

    # -- for the writer

    def wait_for_rows(self, most_s: float) -> None:
        """Until there is a batch, or the end, or for so long."""
        with self._room:
            if not self.closed:
                self.pressed_rows = self._batch_rows
        if len(self.rows) < self._batch_rows:
            self._wake.wait(most_s)
        self._wake.clear()

    def take(self, most: int) -> list[Row]:
        """The oldest rows, as many as make a batch, but not more than that."""
        most = min(most, self._batch_rows)
        rows: list[Row] = []
        held_bytes = 0
        take = self.rows.popleft
        try:
            while len(rows) < most and held_bytes < self._settings.batch_bytes_max:
                row = take()
                rows.append(row)
                if row[-1] is not None:
                    held_bytes += row[-1].held_bytes
        except IndexError:
            pass
        self._release(rows)
        return rows

    def _release(self, rows: list[Row]) -> None:
        """Rows have gone: make their room known."""
        held_bytes = sum(row[-1].held_bytes for row in rows if row[-1] is not None)
        with self._room:
            self._held_bytes -= held_bytes
            self._room.notify_all()

    # -- the end

    def close(self) -> None:
        """The writer still writes what is there."""
        with self._room:
            self.closed = True
            self._room.notify_all()
        self._wake.set()

    def end(self) -> None:
        """The writer has written what was there: whatever else was put came late."""
        with self._room:
            self._ended = True
            self.pressed_rows = 0

    def give_up(self) -> None:
        """There is no writer any more. If it came to the end, what is left came late (and whoever put it was just about
        to take it back); else it is lost."""
        count = self._count_gone
        self.end()
        while True:
            try:
                row = self.rows.popleft()
            except IndexError:
                return
            count(row)

    def disown(self) -> None:
        """This is a forked child: the rows are its parent's, and whoever held the lock is not here."""
        self._room = threading.Condition()
        self._wake = threading.Event()
        self.rows.clear()
        self.close()
        self.end()
