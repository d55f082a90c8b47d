"""Reads a folder of tapes as a batch, or as a stream of added files.

A micro-batch is planned from offsets alone, so that it is the same after a restart. Row groups are taken in the order
of their first event time over all files, so that a backlog of several runs is read in time order, not run by run.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from broadloom.pipeline.quarantine import QuarantineReason
from broadloom.pipeline.spark_source import pushdown as pushed
from broadloom.pipeline.spark_source.offsets import TapeOffset, files_between, run_and_number
from broadloom.pipeline.spark_source.options import SourceOptions
from broadloom.pipeline.spark_source.parquet_files import (
    ExcludedFile,
    ParquetFooter,
    channel_and_day,
    list_files,
    read_footer,
    report_excluded,
)
from broadloom.pipeline.spark_source.row_groups import RowGroupPartition, RowGroupRange, arrow_schema, read
from broadloom.record.arrow_import import pa

TASK_ROWS = 250_000
"""Approximate rows per task: small files are combined, large ones split."""


class ReadPlanner:
    """Caches the footers of the files of a folder until a file changes."""

    def __init__(self, folder: str, quarantine: str | None) -> None:
        self.folder = folder
        self._quarantine = quarantine
        self._footers: dict[str, tuple[tuple[int, int], ParquetFooter | ExcludedFile]] = {}

    def footers(self, skip: TapeOffset | None = None) -> dict[str, ParquetFooter]:
        """Footers of all readable files, without those that `skip` has read completely."""
        found = {}
        files = list_files(self.folder)
        for path, state in files.items():
            if skip is not None and skip.row_groups_read(path) is None:
                self._footers.pop(path, None)
                continue
            known = self._footers.get(path)
            if known is None or known[0] != state:
                result = read_footer(self.folder, path)
                if isinstance(result, ParquetFooter):
                    result = self._find_duplicate(path, result, files, skip) or result
                known = self._footers[path] = state, result
                if isinstance(result, ExcludedFile):
                    report_excluded(self._quarantine, result)
            if isinstance(known[1], ParquetFooter):
                found[path] = known[1]
        return found

    def _find_duplicate(
        self, path: str, footer: ParquetFooter, files: Iterable[str], skip: TapeOffset | None
    ) -> ExcludedFile | None:
        """Exclude a file whose rows are in another one too. Files named by a recorder never are: a run uses each number
        once. Of other copies, the one that was already read is used, or else the first."""
        if run_and_number(path) is not None:
            return None
        place = path.rpartition("/")[0]
        for other in files:
            if other == path or other.rpartition("/")[0] != place:
                continue
            named = run_and_number(other)
            is_read = skip is not None and skip.row_groups_read(other) is None
            if named is None and not is_read and other > path:
                continue
            if named is not None and named[0] != footer.run:
                continue
            result = read_footer(self.folder, other)
            if isinstance(result, ParquetFooter) and footer.overlaps(result):
                return ExcludedFile(path, QuarantineReason.DUPLICATE.value, f"its rows are in {other}")
        return None


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


class TapeReader(DataSourceReader):
    """Reads everything available now."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._folder = options.text("path")
        self._quarantine = options.get("quarantine")
        self._schema = arrow_schema(schema)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self._filters = [each for each in filters if pushed.expression(each) is not None]
        return [each for each in filters if each not in self._filters]

    def partitions(self) -> list[InputPartition]:
        footers = ReadPlanner(self._folder, self._quarantine).footers()
        chosen = {
            path: each for path, each in footers.items() if pushed.may_match(self._filters, *channel_and_day(path))
        }
        return [
            *plan_tasks((RowGroupRange(path, 0, len(footer.row_groups)), footer) for path, footer in chosen.items())
        ] or [RowGroupPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowGroupPartition)
        passing = pushed.all_of(self._filters)
        return read(self._folder, partition.ranges, self._schema, passing, self._quarantine)


class TapeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is added. Runs in one driver process during the query; only `read` runs in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType, folder: str | None = None) -> None:
        self._folder = folder or options.text("path")
        self._quarantine = options.get("quarantine")
        self._rows_max = options.rows_max
        self._schema = arrow_schema(schema)
        self._planner = ReadPlanner(self._folder, self._quarantine)
        self._horizon: set[str] | None = None
        """With available-now: the files present at the start."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return TapeOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._horizon = set(list_files(self._folder))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        rows_max = None if isinstance(limit, ReadAllAvailable) else self._rows_max
        if isinstance(limit, ReadMaxRows):
            rows_max = limit.max_rows
        offset = TapeOffset.from_json(start)
        rows = 0
        for path, group, footer in self._unread_row_groups(offset):
            more = footer.row_groups[group].rows if footer.row_groups else 0
            if rows_max is not None and rows and rows + more > rows_max:
                break
            rows += more
            offset.advance(path, group + 1, len(footer.row_groups))
        return offset.to_json()

    def _unread_row_groups(self, offset: TapeOffset) -> list[tuple[str, int, ParquetFooter]]:
        """Unread row groups by time, within a file in order. An empty file counts as one."""
        found = []
        for path, footer in self._planner.footers(skip=offset).items():
            if self._horizon is not None and path not in self._horizon:
                continue
            time_us = 0
            for group in range(offset.row_groups_read(path) or 0, max(1, len(footer.row_groups))):
                time_us = max(time_us, footer.row_groups[group].first_us if footer.row_groups else 0)
                found.append((time_us, path, group, footer))
        return [(path, group, footer) for _, path, group, footer in sorted(found, key=lambda each: each[:3])]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        first, last = TapeOffset.from_json(start), TapeOffset.from_json(end)
        footers = self._planner.footers(skip=first)
        groups = {path: len(footer.row_groups) for path, footer in footers.items()}
        return [*plan_tasks((RowGroupRange(*each), footers[each[0]]) for each in files_between(first, last, groups))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowGroupPartition)
        return read(self._folder, partition.ranges, self._schema, None, self._quarantine)
