"""Reads row groups as Arrow batches with exactly the requested columns.

A row group is read and verified completely before any row is returned, so damage costs the whole row group and is
reported with its number of rows.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from broadloom.pipeline.analysis.frames import frame
from broadloom.pipeline.quarantine import QuarantineReason
from broadloom.pipeline.row_checks import CHECKED, has_flaws, row_problem
from broadloom.pipeline.spark_source.offsets import TapeFilesRemovedError
from broadloom.pipeline.spark_source.options import SourceOptionError
from broadloom.pipeline.spark_source.parquet_files import ExcludedFile, channel_and_day, report_excluded
from broadloom.record.arrow_import import pa, pc, pq
from broadloom.record.reader import TABLE_SCHEMA
from broadloom.record.schema import with_all_columns

BATCH_ROWS = 65_536
"""Rows per Arrow batch: large enough that passing it on costs little."""

_NO_LIMIT = datetime.max.replace(tzinfo=UTC)
_FOLDERS = ("channel", "event_date")


class RowGroupRange(NamedTuple):
    path: str
    first: int
    after: int
    """Exclusive end."""


class RowGroupPartition(InputPartition):
    """The input of one task."""

    def __init__(self, ranges: list[RowGroupRange]) -> None:
        self.ranges = ranges


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns Spark requests, with their Arrow types."""
    unknown = [name for name in schema.fieldNames() if name not in TABLE_SCHEMA.names]
    if unknown:
        raise SourceOptionError(f"a tape has no column {unknown[0]!r}; columns: {', '.join(TABLE_SCHEMA.names)}")
    return pa.schema([pa.field(name, TABLE_SCHEMA.field(name).type) for name in schema.fieldNames()])


def read(
    folder: str,
    ranges: list[RowGroupRange],
    schema: pa.Schema,
    predicate: "pc.Expression | None",
    quarantine: str | None,
    *,
    only_valid: bool = True,
) -> Iterator[pa.RecordBatch]:
    """All matching rows. Damaged row groups are excluded and reported, and so are invalid rows, with `only_valid`."""
    # A filter, or the check of rows, may need columns that are not selected.
    names = schema.names if predicate is None else TABLE_SCHEMA.names
    names = list(dict.fromkeys([*names, *CHECKED])) if only_valid else names
    for piece in ranges:
        for table in _row_groups(folder, piece, names, quarantine):
            if only_valid:
                table = _valid(table, piece.path, quarantine)
            if predicate is not None:
                table = table.filter(predicate)
            yield from table.select(schema.names).cast(schema).combine_chunks().to_batches(BATCH_ROWS)


def _valid(table: pa.Table, path: str, quarantine: str | None) -> pa.Table:
    """Without the rows that a build excludes, except those in the future: a batch is the same at any time."""
    day = channel_and_day(path)[1]
    if not any(has_flaws(batch, day, _NO_LIMIT) for batch in table.to_batches() if batch.num_rows):
        return table
    rows = frame(table.select([*CHECKED, "event_date"]))
    problems = rows.select(row_problem(rows.columns)).to_series()
    for reason, count in problems.drop_nulls().value_counts(sort=True).iter_rows():
        report_excluded(quarantine, ExcludedFile(path, reason, f"{count} rows"))
    return table.filter(problems.is_null().to_arrow())


def _row_groups(
    folder: str,
    row_group_range: RowGroupRange,
    names: list[str],
    quarantine: str | None,
) -> Iterator[pa.Table]:
    channel, day = channel_and_day(row_group_range.path)
    columns = [name for name in names if name not in _FOLDERS]
    try:
        file = pq.ParquetFile(os.path.join(folder, row_group_range.path), page_checksum_verification=True)
    except FileNotFoundError:
        raise TapeFilesRemovedError(
            f"{os.path.join(folder, row_group_range.path)} was removed after this batch was planned; "
            "put it back, or start with a new checkpoint"
        ) from None
    except (pa.ArrowException, OSError) as problem:
        report_excluded(
            quarantine,
            ExcludedFile(row_group_range.path, QuarantineReason.UNREADABLE.value, str(problem).splitlines()[0]),
        )
        return
    with file:
        available = [name for name in columns if name in file.schema_arrow.names]
        for group in range(row_group_range.first, row_group_range.after):
            try:
                table = file.read_row_group(group, columns=available, use_threads=False)
            except (pa.ArrowException, OSError) as problem:
                lost = file.metadata.row_group(group).num_rows
                detail = f"row group {group} ({lost} rows): {str(problem).splitlines()[0]}"
                excluded = ExcludedFile(row_group_range.path, QuarantineReason.UNREADABLE.value, detail)
                report_excluded(quarantine, excluded)
                continue
            rows = file.metadata.row_group(group).num_rows
            if not available:
                table = pa.table({"": pa.nulls(rows)})
            table = with_all_columns(table, columns)
            for name, value in (("channel", channel), ("event_date", day)):
                table = table.append_column(name, pa.repeat(pa.scalar(value, TABLE_SCHEMA.field(name).type), rows))
            yield table
