"""Between polars and Arrow: a table of exactly these columns and types, as Spark insists on."""

import polars as pl

from broadloom.record.arrow_import import pa


def frame(table: pa.Table) -> pl.DataFrame:
    got = pl.from_arrow(table)
    assert isinstance(got, pl.DataFrame)
    return got


def to_schema(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """Columns that are lacking are null."""
    table = frame.to_arrow()
    arrays = [
        table[each.name].cast(each.type) if each.name in table.column_names else pa.nulls(table.num_rows, each.type)
        for each in schema
    ]
    return pa.table(arrays, schema=schema.remove_metadata())
