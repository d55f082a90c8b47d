"""Compares the results of two builds, row by row."""

from pathlib import Path

import polars as pl

from broadloom.pipeline.results import Results
from broadloom.pipeline.table import Table
from broadloom.pipeline.tables import all_tables


def differing_tables(one: Path, other: Path) -> list[str]:
    """Names of tables whose rows differ. A table has no order, and neither has the list of findings of a balance."""
    return [each.name for each in all_tables() if not sorted_rows(one, each).equals(sorted_rows(other, each))]


def sorted_rows(out: Path, table: Table) -> pl.DataFrame:
    rows = pl.DataFrame(pl.from_arrow(Results(out).read(table)))
    if "findings" in rows.columns:
        rows = rows.with_columns(pl.col("findings").list.sort())
    nested = [name for name, kind in rows.schema.items() if kind.is_nested()]
    texts = [pl.Series(name, [repr(each) for each in rows[name].to_list()], pl.String) for name in nested]
    return rows.with_columns(texts).sort(rows.columns)
