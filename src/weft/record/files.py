"""The files that are open, when each is finished, and what is done in trouble. The writer's thread alone comes here.

The rule: every row that comes in ends in a finished file or in the account of what was lost. Trouble with the disk
costs the file it struck; after a pause a new one is tried, for as long as the tape is open.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.record.file import TapeFile
from weft.record.lost import Key, Lost
from weft.record.rows import Part, Row, by_file, gap_batch, to_batch
from weft.record.settings import TapeSettings

logger = logging.getLogger("weft.record")


@dataclass(slots=True)
class Counters:
    """What became of the rows; whole numbers that only grow."""

    rows: int = 0
    """In finished files."""
    files: int = 0
    """Finished."""
    bytes: int = 0
    """Of finished files."""
    troubles: int = 0
    """Files that were given up."""


class Files:
    def __init__(
        self,
        directory: Path,
        run: str,
        settings: TapeSettings,
        monotonic: Callable[[], float],
        lost: Lost,
        on_problem: Callable[[str], None] | None,
    ) -> None:
        self.problem: str | None = None
        """What is wrong at present; None again when a file was finished."""
        self.counters = Counters()
        self._directory = directory
        self._run = run
        self._settings = settings
        self._monotonic = monotonic
        self._lost = lost
        self._on_problem = on_problem
        self._open: dict[Key, TapeFile] = {}  # the one written to last at the end
        self._number = 0
        self._ordinal = 0
        self._retry_at = 0.0

    def write(self, rows: Sequence[Row]) -> None:
        parts = by_file(rows, self._ordinal)
        self._ordinal += len(rows)
        for key, part in parts.items():
            self._write_part(key, part)
        last = dict(list(self._open))  # the day of each channel that was written to last
        for key in [key for key in self._open if last[key[0]] != key[1]]:
            self._finish(key)  # midnight
        while sum(file.gathered_bytes for file in self._open.values()) > self._settings.gathered_bytes_max:
            largest = max(self._open.values(), key=lambda file: file.gathered_bytes)
            self._try(largest.key, largest.write_group)

    def tick(self) -> None:
        """Finish what has been open for long enough, and see that losses are told of."""
        settings = self._settings
        file_s = settings.file_s if self.problem is None else min(settings.file_s, settings.retry_s)
        now = self._monotonic()
        for key in [key for key, file in self._open.items() if now - file.opened_at >= file_s]:
            self._finish(key)
        if now >= self._retry_at:
            for key in self._lost.untold:
                if key not in self._open:
                    self._try(key, self._file, key)

    def finish_all(self) -> None:
        """The end of the tape. What was lost is told if there is any way to."""
        for key in list(self._open):
            self._finish(key)
        for key in self._lost.untold:
            self._try(key, self._file, key)
            self._finish(key)

    def _write_part(self, key: Key, part: Part) -> None:
        tally = part.tally
        if key not in self._open and self._monotonic() < self._retry_at:
            self._lost.add(key, tally)
            return
        try:
            batch = to_batch(part, key[0], self._run)
        except Exception as problem:
            self._lost.add(key, tally)
            self._report(f"rows that cannot be written: {type(problem).__name__}: {problem}")
            return
        if not self._try(key, self._file, key):
            self._lost.add(key, tally)
            return
        file = self._open[key] = self._open.pop(key)
        file.add(batch, tally)
        limit = self._settings.file_bytes_max
        if file.gathered_bytes >= self._settings.group_bytes_max or file.written_bytes + file.gathered_bytes >= limit:
            if self._try(key, file.write_group) and file.written_bytes >= limit:
                self._finish(key)

    def _file(self, key: Key) -> None:
        """See that there is one open."""
        if key not in self._open:
            while len(self._open) >= self._settings.files_open_max:
                self._finish(next(iter(self._open)))
            self._number += 1
            self._open[key] = TapeFile(self._directory, key, self._run, self._number, self._monotonic())

    def _finish(self, key: Key) -> None:
        file = self._open.get(key)
        if file is None:
            return
        lost = self._lost.take(key)
        if lost is not None:
            batch = gap_batch(lost, self._ordinal, key[0], self._run)
            self._ordinal += 1
            file.add(batch, lost, told=lost.rows)
        if self._try(key, file.finish):
            del self._open[key]
            self._works()
            self.counters.files += 1
            self.counters.rows += file.rows
            self.counters.bytes += file.written_bytes

    def _try(self, key: Key, act: Callable[..., None], *args: Key) -> bool:
        """Do something with a file; if it fails the file is given up and its rows are lost."""
        try:
            act(*args)
        except Exception as problem:  # mostly OSError; whatever it is, the channel goes on
            file = self._open.pop(key, None)
            if file is not None:
                file.abandon()
                if file.tally is not None:
                    self._lost.add(key, file.tally, told=file.told)
            self.counters.troubles += 1
            self._retry_at = self._monotonic() + self._settings.retry_s
            self._report(f"cannot write to {self._directory}: {problem}")
            return False
        return True

    def disown(self) -> None:
        """This is a forked child: the files are its parent's."""
        for file in self._open.values():
            file.disown()
        self._open.clear()

    def _works(self) -> None:
        if self.problem is not None:
            logger.warning("the tape is written again; %d rows were lost so far", self._lost.rows)
        self.problem = None
        self._retry_at = 0.0

    def _report(self, problem: str) -> None:
        """Tell of trouble once, however often it strikes before a file is finished again."""
        told = self.problem is not None
        self.problem = problem
        if told:
            return
        logger.error("the tape has trouble, rows are being lost: %s", problem)
        if self._on_problem is not None:
            try:
                self._on_problem(problem)
            except Exception:
                logger.exception("a callback for trouble with the tape failed")
