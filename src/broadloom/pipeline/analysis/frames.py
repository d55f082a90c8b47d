"""Conversion between Arrow and polars. The functions behind tables take and return Arrow, and compute with polars.

`frame` and `to_schema` keep times as they are. With `frame_us` and `table_us`, a time is an integer number of
microseconds since 1970, which can be subtracted, shifted by a clock offset and joined exactly.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import polars as pl

from broadloom.record.arrow_import import pa

MINUTE_US = 60_000_000
MICROSECONDS_PER_S = 1_000_000


def frame_us(table: pa.Table) -> pl.DataFrame:
    """All timestamps become microseconds."""
    return frame(table).with_columns(pl.col(pl.Datetime).dt.timestamp("us"))


def table_us(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """Exactly these columns, order and types; microseconds become timestamps where the schema has timestamps."""
    table = frame.select(schema.names).to_arrow(compat_level=pl.CompatLevel.oldest())
    plain = pa.schema(
        [pa.field(each.name, pa.int64() if pa.types.is_timestamp(each.type) else each.type) for each in schema]
    )
    return table.cast(plain).cast(pa.schema([pa.field(each.name, each.type) for each in schema]))


def to_ms(microseconds: pl.Expr) -> pl.Expr:
    """Integer microseconds as milliseconds. Rounded, because polars divides by multiplying with the reciprocal."""
    return (microseconds / 1000).round(3)


def seconds(duration_s: float) -> pl.Expr:
    return pl.duration(microseconds=int(duration_s * 1e6))


def minute_of(column: str) -> pl.Expr:
    """Start of the minute, in microseconds."""
    return pl.col(column).floordiv(MINUTE_US) * MINUTE_US


def frame(table: pa.Table) -> pl.DataFrame:
    """Times stay times."""
    return cast("pl.DataFrame", pl.from_arrow(table))


def arrow(frame: pl.DataFrame) -> pa.Table:
    """The types of a frame, without those that only new versions of Arrow have."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def to_schema(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """Exactly these columns; times are times, and missing columns become null."""
    table = arrow(frame)
    arrays = [
        table[each.name].cast(each.type) if each.name in table.column_names else pa.nulls(table.num_rows, each.type)
        for each in schema
    ]
    return pa.table(arrays, schema=schema.remove_metadata())


def with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Exactly these columns; those that are missing are null."""
    arrays = [rows[each.name] if each.name in rows.column_names else pa.nulls(len(rows), each.type) for each in schema]
    return pa.table(arrays, names=schema.names).cast(schema)


def empty(schema: pa.Schema) -> pa.Table:
    """A table without rows. As `schema.empty_table()`, which imports pandas: that takes longer than many a table."""
    return pa.table([pa.nulls(0, each.type) for each in schema], schema=schema)


def from_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """As `pa.Table.from_pylist`, which imports pandas too."""
    kinds = frame(empty(schema)).schema
    return to_schema(
        pl.DataFrame([pl.Series(name, [row[name] for row in rows], kinds[name]) for name in kinds]), schema
    )
