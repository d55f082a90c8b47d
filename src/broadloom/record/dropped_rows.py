"""The account of rows that could not be kept, by channel and day, until a gap row has told of them.

The rule: every lost row is counted here exactly once, and an account is closed only by a gap row on the disk. If the
file with the gap row is lost in turn, its account is opened again.
"""

import threading
from dataclasses import dataclass

Key = tuple[str, int]
"""Channel (id in hex) and day (counted from 1970)."""


@dataclass(slots=True)
class RowRange:
    """So many rows, from this time to that, in microseconds."""

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
        """Lost since the beginning, told or not."""
        self._lock = threading.Lock()
        self._unreported: dict[Key, RowRange] = {}

    def add(self, key: Key, row_range: RowRange, *, already_reported: int = 0) -> None:
        """Rows of the tally are lost; `told` of them were lost before, and the gap row that said so is lost now."""
        with self._lock:
            self.rows += row_range.rows - already_reported
            known = self._unreported.get(key)
            if known is None:
                self._unreported[key] = RowRange(row_range.rows, row_range.first_us, row_range.last_us)
            else:
                known.include(row_range)

    def take(self, key: Key) -> RowRange | None:
        """What a gap row has to tell now. Whoever takes it puts it on the disk or adds it again."""
        with self._lock:
            return self._unreported.pop(key, None)

    @property
    def unreported(self) -> list[Key]:
        with self._lock:
            return list(self._unreported)

    def after_fork(self) -> None:
        """This is a forked child: whoever held the lock is not here."""
        self._lock = threading.Lock()
        self._unreported.clear()
