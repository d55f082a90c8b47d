"""A folder of tapes, as a batch of all there is, and as a stream of what is added.

The rule of the stream: a micro-batch is planned from offsets alone, so that it is the same after a restart. Row groups
are taken in the order of their first time over all files, so that a backlog of several runs comes as it happened, and
not run by run.
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

from weft.pipeline.quarantine import Reason
from weft.pipeline.source import filters as pushed
from weft.pipeline.source.files import Aside, Footer, examine, listed, tell, told_by_folders
from weft.pipeline.source.offsets import Offset, between, run_and_number
from weft.pipeline.source.options import Options
from weft.pipeline.source.rows import Piece, Pieces, read, wanted
from weft.record.arrow import pa

TASK_ROWS = 250_000
"""Rows that one task reads, about: small files are put together, large ones are taken apart."""


class Planner:
    """Knows the files of a folder. What their footers say is asked once, for each state of a file."""

    def __init__(self, folder: str, quarantine: str | None) -> None:
        self.folder = folder
        self._quarantine = quarantine
        self._known: dict[str, tuple[tuple[int, int], Footer | Aside]] = {}

    def footers(self, skip: Offset | None = None) -> dict[str, Footer]:
        """Of all files that can be read; without those that `skip` has read to their end."""
        found = {}
        files = listed(self.folder)
        for path, state in files.items():
            if skip is not None and skip.groups_read(path) is None:
                self._known.pop(path, None)
                continue
            known = self._known.get(path)
            if known is None or known[0] != state:
                said = examine(self.folder, path)
                if isinstance(said, Footer):
                    said = self._twin(path, said, files, skip) or said
                known = self._known[path] = state, said
                if isinstance(said, Aside):
                    tell(self._quarantine, said)
            if isinstance(known[1], Footer):
                found[path] = known[1]
        return found

    def _twin(self, path: str, footer: Footer, files: Iterable[str], skip: Offset | None) -> Aside | None:
        """A file whose rows are in another too is set aside. Those with a recorder's name never are: a run gives each
        number once. Of copies by other names the one that was read is used, or else the first."""
        if run_and_number(path) is not None:
            return None
        place = path.rpartition("/")[0]
        for other in files:
            if other == path or other.rpartition("/")[0] != place:
                continue
            named = run_and_number(other)
            is_read = skip is not None and skip.groups_read(other) is None
            if named is None and not is_read and other > path:
                continue
            if named is not None and named[0] != footer.run:
                continue
            said = examine(self.folder, other)
            if isinstance(said, Footer) and footer.overlaps(said):
                return Aside(path, Reason.DUPLICATE.value, f"rows of it are in {other}")
        return None


def tasks(pieces: Iterable[tuple[Piece, Footer]]) -> list[Pieces]:
    """Row groups, in their order, for tasks of about the same size."""
    planned: list[list[Piece]] = []
    rows = TASK_ROWS
    for piece, footer in pieces:
        for group in range(piece.first, piece.after):
            if rows >= TASK_ROWS:
                planned.append([])
                rows = 0
            last = planned[-1][-1] if planned[-1] else None
            if last is not None and last.path == piece.path and last.after == group:
                planned[-1][-1] = last._replace(after=group + 1)
            else:
                planned[-1].append(Piece(piece.path, group, group + 1))
            rows += footer.groups[group].rows
    return [Pieces(each) for each in planned]


class TapesReader(DataSourceReader):
    """All that is there now."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._folder = options.text("path")
        self._quarantine = options.get("quarantine")
        self._schema = wanted(schema)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self._filters = [each for each in filters if pushed.expression(each) is not None]
        return [each for each in filters if each not in self._filters]

    def partitions(self) -> list[InputPartition]:
        footers = Planner(self._folder, self._quarantine).footers()
        chosen = {
            path: each for path, each in footers.items() if pushed.may_hold(self._filters, *told_by_folders(path))
        }
        return [*tasks((Piece(path, 0, len(footer.groups)), footer) for path, footer in chosen.items())] or [Pieces([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Pieces)
        passing = pushed.all_of(self._filters)
        return read(self._folder, partition.pieces, self._schema, passing, self._quarantine)


class TapesStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What is added. Lives in one process of the driver from start to end of the query; only `read` runs in tasks."""

    def __init__(self, options: Options, schema: StructType, folder: str | None = None) -> None:
        self._folder = folder or options.text("path")
        self._quarantine = options.get("quarantine")
        self._rows_max = options.rows_max
        self._schema = wanted(schema)
        self._planner = Planner(self._folder, self._quarantine)
        self._horizon: set[str] | None = None
        """With available-now: the files that were there when it began."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return Offset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._horizon = set(listed(self._folder))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        rows_max = None if isinstance(limit, ReadAllAvailable) else self._rows_max
        if isinstance(limit, ReadMaxRows):
            rows_max = limit.max_rows
        offset = Offset.from_json(start)
        rows = 0
        for path, group, footer in self._in_order(offset):
            more = footer.groups[group].rows if footer.groups else 0
            if rows_max is not None and rows and rows + more > rows_max:
                break
            rows += more
            offset.advance(path, group + 1, len(footer.groups))
        return offset.to_json()

    def _in_order(self, offset: Offset) -> list[tuple[str, int, Footer]]:
        """Row groups that were not read yet, by time; within a file by their order. A file without any is one too."""
        found = []
        for path, footer in self._planner.footers(skip=offset).items():
            if self._horizon is not None and path not in self._horizon:
                continue
            time_us = 0
            for group in range(offset.groups_read(path) or 0, max(1, len(footer.groups))):
                time_us = max(time_us, footer.groups[group].first_us if footer.groups else 0)
                found.append((time_us, path, group, footer))
        return [(path, group, footer) for _, path, group, footer in sorted(found, key=lambda each: each[:3])]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        first, last = Offset.from_json(start), Offset.from_json(end)
        footers = self._planner.footers(skip=first)
        groups = {path: len(footer.groups) for path, footer in footers.items()}
        return [*tasks((Piece(*each), footers[each[0]]) for each in between(first, last, groups))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Pieces)
        return read(self._folder, partition.pieces, self._schema, None, self._quarantine)
