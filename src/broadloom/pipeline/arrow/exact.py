"""Conversion between polars and Arrow with exactly the columns and types that Spark requires."""

import polars as pl

from broadloom.record.arrow_import import pa


def frame(table: pa.Table) -> pl.DataFrame:
    result = pl.from_arrow(table)
    assert isinstance(result, pl.DataFrame)
    return result


def to_schema(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """Missing columns become null."""
    table = frame.to_arrow()
    arrays = [
        table[each.name].cast(each.type) if each.name in table.column_names else pa.nulls(table.num_rows, each.type)
        for each in schema
    ]
    return pa.table(arrays, schema=schema.remove_metadata())
