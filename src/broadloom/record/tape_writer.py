"""`TapeWriter`: the open files, their rotation, and recovery from disk errors. Used by the writer thread only.

Every row ends up in a finished file or in the count of dropped rows. A disk error costs the file it affects; after a
delay a new file is tried, for as long as the tape is open.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from broadloom.record.dropped_rows import DroppedRows, Key
from broadloom.record.rows import FileSlice, Row, dropped_rows_batch, split_by_file, to_batch
from broadloom.record.settings import TapeSettings
from broadloom.record.tape_file import TapeFile

logger = logging.getLogger("broadloom.record")


@dataclass(slots=True)
class TapeCounters:
    """Totals of all finished files."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    abandoned_files: int = 0
    """Files given up because of errors; not in the other totals."""


class TapeWriter:
    def __init__(
        self,
        directory: Path,
        run_id: str,
        settings: TapeSettings,
        monotonic: Callable[[], float],
        dropped: DroppedRows,
        on_error: Callable[[str], None] | None,
    ) -> None:
        self.last_error: str | None = None
        """The current error; None again after a file was finished."""
        self.counters = TapeCounters()
        self._directory = directory
        self._run_id = run_id
        self._settings = settings
        self._monotonic = monotonic
        self._dropped = dropped
        self._on_error = on_error
        self._open: dict[Key, TapeFile] = {}  # least recently written first
        self._number = 0
        self._ordinal = 0
        self._retry_at = 0.0

    def write(self, rows: Sequence[Row]) -> None:
        parts = split_by_file(rows, self._ordinal)
        self._ordinal += len(rows)
        for key, part in parts.items():
            self._write_slice(key, part)
        last = dict(list(self._open))  # the latest day of each channel
        for key in [key for key in self._open if last[key[0]] != key[1]]:
            self._finish(key)  # midnight has passed
        while sum(file.buffered_bytes for file in self._open.values()) > self._settings.buffered_bytes_max:
            largest = max(self._open.values(), key=lambda file: file.buffered_bytes)
            self._try(largest.key, largest.write_row_group)

    def tick(self) -> None:
        """Finish files that are old enough, and report dropped rows."""
        settings = self._settings
        file_s = (
            settings.file_duration_s
            if self.last_error is None
            else min(settings.file_duration_s, settings.retry_delay_s)
        )
        now = self._monotonic()
        for key in [key for key, file in self._open.items() if now - file.opened_at >= file_s]:
            self._finish(key)
        if now >= self._retry_at:
            for key in self._dropped.unreported:
                if key not in self._open:
                    self._try(key, self._ensure_open, key)

    def finish_all(self) -> None:
        """Finish all files, and report dropped rows if possible."""
        for key in list(self._open):
            self._finish(key)
        for key in self._dropped.unreported:
            self._try(key, self._ensure_open, key)
            self._finish(key)

    def _write_slice(self, key: Key, part: FileSlice) -> None:
        row_range = part.row_range
        if key not in self._open and self._monotonic() < self._retry_at:
            self._dropped.add(key, row_range)
            return
        try:
            batch = to_batch(part, key[0], self._run_id)
        except Exception as problem:
            self._dropped.add(key, row_range)
            self._report(f"cannot convert rows: {type(problem).__name__}: {problem}")
            return
        if not self._try(key, self._ensure_open, key):
            self._dropped.add(key, row_range)
            return
        file = self._open[key] = self._open.pop(key)
        file.add(batch, row_range)
        limit = self._settings.file_bytes_max
        if (
            file.buffered_bytes >= self._settings.row_group_bytes_max
            or file.written_bytes + file.buffered_bytes >= limit
        ):
            if self._try(key, file.write_row_group) and file.written_bytes >= limit:
                self._finish(key)

    def _ensure_open(self, key: Key) -> None:
        if key not in self._open:
            while len(self._open) >= self._settings.files_open_max:
                self._finish(next(iter(self._open)))
            self._number += 1
            self._open[key] = TapeFile(self._directory, key, self._run_id, self._number, self._monotonic())

    def _finish(self, key: Key) -> None:
        file = self._open.get(key)
        if file is None:
            return
        dropped = self._dropped.take(key)
        if dropped is not None:
            batch = dropped_rows_batch(dropped, self._ordinal, key[0], self._run_id)
            self._ordinal += 1
            file.add(batch, dropped, already_reported=dropped.rows)
        if self._try(key, file.finish):
            del self._open[key]
            self._on_recovered()
            self.counters.files += 1
            self.counters.rows += file.rows
            self.counters.bytes += file.written_bytes

    def _try(self, key: Key, action: Callable[..., None], *args: Key) -> bool:
        """Call a method of a file. If it fails, the file is abandoned and its rows are dropped."""
        try:
            action(*args)
        except Exception as problem:  # mostly OSError; the channel must continue in any case
            file = self._open.pop(key, None)
            if file is not None:
                file.abandon()
                if file.row_range is not None:
                    self._dropped.add(key, file.row_range, already_reported=file.already_reported)
            self.counters.abandoned_files += 1
            self._retry_at = self._monotonic() + self._settings.retry_delay_s
            self._report(f"cannot write to {self._directory}: {problem}")
            return False
        return True

    def after_fork(self) -> None:
        """In a forked child: the files belong to the parent."""
        for file in self._open.values():
            file.after_fork()
        self._open.clear()

    def _on_recovered(self) -> None:
        if self.last_error is not None:
            logger.warning("the tape is writable again; %d rows dropped so far", self._dropped.rows)
        self.last_error = None
        self._retry_at = 0.0

    def _report(self, problem: str) -> None:
        """Log and report an error once, until a file is finished again."""
        was_reported = self.last_error is not None
        self.last_error = problem
        if was_reported:
            return
        logger.error("the tape cannot be written, rows are dropped: %s", problem)
        if self._on_error is not None:
            try:
                self._on_error(problem)
            except Exception:
                logger.exception("the on_error callback of the tape failed")
