"""Accounting of dropped rows, by channel and day, until a `rows_dropped` row on the tape reports them.

Every dropped row is counted exactly once, and only a `rows_dropped` row on disk settles the count. If the file with
that row is lost in turn, the count is restored.
"""

import threading
from dataclasses import dataclass

Key = tuple[str, int]
"""Channel id in hexadecimal, and days since 1970."""


@dataclass(slots=True)
class RowRange:
    """A number of rows and the time they span, in microseconds."""

    rows: int
    first_us: int
    last_us: int

    def include(self, other: "RowRange") -> None:
        self.rows += other.rows
        self.first_us = min(self.first_us, other.first_us)
        self.last_us = max(self.last_us, other.last_us)


class DroppedRows:
    def __init__(self) -> None:
        self.rows = 0
        """Total since the start, reported or not."""
        self._lock = threading.Lock()
        self._unreported: dict[Key, RowRange] = {}

    def add(self, key: Key, row_range: RowRange, *, already_reported: int = 0) -> None:
        """Count dropped rows. `already_reported` of them were counted before, in a lost `rows_dropped` row."""
        with self._lock:
            self.rows += row_range.rows - already_reported
            known = self._unreported.get(key)
            if known is None:
                self._unreported[key] = RowRange(row_range.rows, row_range.first_us, row_range.last_us)
            else:
                known.include(row_range)

    def take(self, key: Key) -> RowRange | None:
        """The rows to report now. The caller writes them to disk, or adds them again."""
        with self._lock:
            return self._unreported.pop(key, None)

    @property
    def unreported(self) -> list[Key]:
        with self._lock:
            return list(self._unreported)

    def after_fork(self) -> None:
        """In a forked child: the thread that may hold the lock does not exist here."""
        self._lock = threading.Lock()
        self._unreported.clear()
