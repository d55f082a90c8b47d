"""The files that are open, when each is finished, and what is done in trouble. The writer's thread alone comes here.

The rule: every row that comes in ends in a finished file or in the account of what was lost. Trouble with the disk
costs the file it struck; after a pause a new one is tried, for as long as the tape is open.
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
    """What became of the rows; whole numbers that only grow."""

    rows: int = 0
    """In finished files."""
    files: int = 0
    """Finished."""
    bytes: int = 0
    """Of finished files."""
    abandoned_files: int = 0
    """Files that were given up."""


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
        """What is wrong at present; None again when a file was finished."""
        self.counters = TapeCounters()
        self._directory = directory
        self._run_id = run_id
        self._settings = settings
        self._monotonic = monotonic
        self._dropped = dropped
        self._on_error = on_error
        self._open: dict[Key, TapeFile] = {}  # the one written to last at the end
        self._number = 0
        self._ordinal = 0
        self._retry_at = 0.0

    def write(self, rows: Sequence[Row]) -> None:
        parts = split_by_file(rows, self._ordinal)
        self._ordinal += len(rows)
        for key, part in parts.items():
            self._write_slice(key, part)
        last = dict(list(self._open))  # the day of each channel that was written to last
        for key in [key for key in self._open if last[key[0]] != key[1]]:
            self._finish(key)  # midnight
        while sum(file.buffered_bytes for file in self._open.values()) > self._settings.buffered_bytes_max:
            largest = max(self._open.values(), key=lambda file: file.buffered_bytes)
            self._try(largest.key, largest.write_row_group)

    def tick(self) -> None:
        """Finish what has been open for long enough, and see that losses are told of."""
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
        """The end of the tape. What was lost is told if there is any way to."""
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
            self._report(f"rows that cannot be written: {type(problem).__name__}: {problem}")
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
        """See that there is one open."""
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
        """Do something with a file; if it fails the file is given up and its rows are lost."""
        try:
            action(*args)
        except Exception as problem:  # mostly OSError; whatever it is, the channel goes on
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
        """This is a forked child: the files are its parent's."""
        for file in self._open.values():
            file.after_fork()
        self._open.clear()

    def _on_recovered(self) -> None:
        if self.last_error is not None:
            logger.warning("the tape is written again; %d rows were lost so far", self._dropped.rows)
        self.last_error = None
        self._retry_at = 0.0

    def _report(self, problem: str) -> None:
        """Tell of trouble once, however often it strikes before a file is finished again."""
        was_reported = self.last_error is not None
        self.last_error = problem
        if was_reported:
            return
        logger.error("the tape has trouble, rows are being lost: %s", problem)
        if self._on_error is not None:
            try:
                self._on_error(problem)
            except Exception:
                logger.exception("a callback for trouble with the tape failed")
