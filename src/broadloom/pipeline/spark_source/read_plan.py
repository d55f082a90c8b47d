"""Plans what to read of a folder of tapes: the readable files, each row in only one of them, and micro-batches.

A micro-batch is planned from offsets alone, so that it is the same after a restart. Row groups are taken in the order
of their first event time over all files, so that a backlog of several runs is read in time order, not run by run.
"""

from collections.abc import Collection, Iterable, Mapping

from broadloom.pipeline.quarantine import QuarantineReason
from broadloom.pipeline.spark_source.offsets import TapeOffset, files_between
from broadloom.pipeline.spark_source.parquet_files import (
    ExcludedFile,
    ParquetFooter,
    list_files,
    read_footer,
    report_excluded,
)
from broadloom.pipeline.spark_source.row_groups import RowGroupPartition, RowGroupRange

TASK_ROWS = 250_000
"""Approximate rows per task: small files are combined, large ones split."""


class ReadPlanner:
    """Caches the footers of the files of a folder until a file changes."""

    def __init__(self, folder: str, quarantine: str | None) -> None:
        self.folder = folder
        self._quarantine = quarantine
        self._footers: dict[str, tuple[tuple[int, int], ParquetFooter | ExcludedFile]] = {}
        self._reported: set[ExcludedFile] = set()

    def footers(self, read: TapeOffset | None = None, planned: TapeOffset | None = None) -> dict[str, ParquetFooter]:
        """Footers of all readable files, without those that were `read` completely.

        Of files with the same rows one is used: one that was read, or is part of a `planned` batch; else the largest,
        and of equally large ones the first by name.
        """
        files = list_files(self.folder)
        unread = [path for path in files if read is None or read.row_groups_read(path) is not None]
        places = {_folder_of(path) for path in unread}
        near = {path: self._footer(path, state) for path, state in files.items() if _folder_of(path) in places}
        known = {path: footer for path, footer in near.items() if footer is not None}
        self._footers = {path: each for path, each in self._footers.items() if path in files}

        def preference(path: str) -> tuple[bool, int, str]:
            is_chosen = any(each is not None and each.row_groups_read(path) != 0 for each in (read, planned))
            return not is_chosen, -known[path].rows, path

        by_run: dict[tuple[str, str], list[str]] = {}
        for path in sorted(known, key=preference):
            by_run.setdefault((_folder_of(path), known[path].run), []).append(path)
        for paths in by_run.values():
            for path in self._duplicates(paths, known):
                del known[path]
        return {path: known[path] for path in unread if path in known}

    def next_offset(
        self, start: TapeOffset, rows_max: int | None = None, horizon: Collection[str] | None = None
    ) -> TapeOffset:
        """The end of the next micro-batch: `start` if there is nothing new. `horizon` are the only files to read."""
        offset = TapeOffset.from_json(start.to_json())
        rows = 0
        for path, group, footer in self._unread_row_groups(start, horizon):
            more = footer.row_groups[group].rows if footer.row_groups else 0
            if rows_max is not None and rows and rows + more > rows_max:
                break
            rows += more
            offset.advance(path, group + 1, len(footer.row_groups))
        return offset

    def tasks(self, start: TapeOffset, end: TapeOffset) -> list[RowGroupPartition]:
        """The tasks of a planned micro-batch."""
        footers = self.footers(start, end)
        groups = {path: len(footer.row_groups) for path, footer in footers.items()}
        return plan_tasks((RowGroupRange(*each), footers[each[0]]) for each in files_between(start, end, groups))

    def _footer(self, path: str, state: tuple[int, int]) -> ParquetFooter | None:
        known = self._footers.get(path)
        if known is None or known[0] != state:
            known = self._footers[path] = state, read_footer(self.folder, path)
        if isinstance(known[1], ParquetFooter):
            return known[1]
        self._report(known[1])
        return None

    def _duplicates(self, paths: list[str], footers: Mapping[str, ParquetFooter]) -> list[str]:
        """Files of one run whose rows are in an earlier one of the list."""
        kept: list[str] = []
        excluded = []
        for path in paths:
            other = next((each for each in kept if footers[path].overlaps(footers[each])), None)
            if other is None:
                kept.append(path)
                continue
            excluded.append(path)
            self._report(ExcludedFile(path, QuarantineReason.DUPLICATE.value, f"its rows are in {other}"))
        return excluded

    def _report(self, excluded: ExcludedFile) -> None:
        if excluded not in self._reported:
            self._reported.add(excluded)
            report_excluded(self._quarantine, excluded)

    def _unread_row_groups(
        self, offset: TapeOffset, horizon: Collection[str] | None
    ) -> list[tuple[str, int, ParquetFooter]]:
        """Unread row groups by time, within a file in order. An empty file counts as one."""
        found = []
        for path, footer in self.footers(offset).items():
            if horizon is not None and path not in horizon:
                continue
            time_us = 0
            for group in range(offset.row_groups_read(path) or 0, max(1, len(footer.row_groups))):
                time_us = max(time_us, footer.row_groups[group].first_us if footer.row_groups else 0)
                found.append((time_us, path, group, footer))
        return [(path, group, footer) for _, path, group, footer in sorted(found, key=lambda each: each[:3])]


def plan_tasks(ranges: Iterable[tuple[RowGroupRange, ParquetFooter]]) -> list[RowGroupPartition]:
    """Distribute row groups, in order, over tasks of about the same size."""
    planned: list[list[RowGroupRange]] = []
    rows = TASK_ROWS
    for piece, footer in ranges:
        for group in range(piece.first, piece.after):
            if rows >= TASK_ROWS:
                planned.append([])
                rows = 0
            last = planned[-1][-1] if planned[-1] else None
            if last is not None and last.path == piece.path and last.after == group:
                planned[-1][-1] = last._replace(after=group + 1)
            else:
                planned[-1].append(RowGroupRange(piece.path, group, group + 1))
            rows += footer.row_groups[group].rows
    return [RowGroupPartition(each) for each in planned]


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]
