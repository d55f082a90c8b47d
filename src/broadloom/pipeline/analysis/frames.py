"""Frames of polars, in which everything is computed, and Arrow, in which files are read and written.

A time is a time in a table, and an integer number of microseconds since 1970 where it is computed with (`in_us`): that
can be subtracted, shifted by a clock offset and joined exactly. `conform` makes it a time again.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, cast

import polars as pl

from broadloom.pipeline.table import TableColumn, schema_of
from broadloom.record.arrow_import import pa

MINUTE_US = 60_000_000
MICROSECONDS_PER_S = 1_000_000


def in_us(rows: pl.DataFrame) -> pl.DataFrame:
    """All times become microseconds."""
    return rows.with_columns(pl.col(pl.Datetime).dt.timestamp("us"))


def conform(rows: pl.DataFrame, columns: Iterable[TableColumn]) -> pl.DataFrame:
    """Exactly these columns, order and types. Microseconds become times, and missing columns are null."""
    return rows.select(
        pl.col(name).cast(kind) if name in rows.columns else pl.lit(None, kind).alias(name)
        for name, kind in _kinds(tuple(columns)).items()
    )


def from_rows(rows: Sequence[Mapping[str, Any]], columns: Iterable[TableColumn]) -> pl.DataFrame:
    """Times as times or in microseconds."""
    kinds = _kinds(tuple(columns))
    return pl.DataFrame([pl.Series(name, [row[name] for row in rows], kind) for name, kind in kinds.items()])


@cache
def _kinds(columns: tuple[TableColumn, ...]) -> dict[str, pl.DataType]:
    return dict(frame(empty(schema_of(columns))).schema)


def to_ms(microseconds: pl.Expr) -> pl.Expr:
    """Integer microseconds as milliseconds. Rounded, because polars divides by multiplying with the reciprocal."""
    return (microseconds / 1000).round(3)


def seconds(duration_s: float) -> pl.Expr:
    return pl.duration(microseconds=int(duration_s * 1e6))


def minute_of(column: str) -> pl.Expr:
    """Start of the minute, in microseconds."""
    return pl.col(column).floordiv(MINUTE_US) * MINUTE_US


def frame(table: pa.Table) -> pl.DataFrame:
    return cast("pl.DataFrame", pl.from_arrow(table))


def arrow(rows: pl.DataFrame) -> pa.Table:
    """The types of a frame, without those that only new versions of Arrow have."""
    return rows.to_arrow(compat_level=pl.CompatLevel.oldest())


def with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Exactly these columns; those that are missing are null."""
    arrays = [rows[each.name] if each.name in rows.column_names else pa.nulls(len(rows), each.type) for each in schema]
    return pa.table(arrays, names=schema.names).cast(schema)


def empty(schema: pa.Schema) -> pa.Table:
    """A table without rows. As `schema.empty_table()`, which imports pandas: that takes longer than many a table."""
    return pa.table([pa.nulls(0, each.type) for each in schema], schema=schema)
