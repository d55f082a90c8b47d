"""Between Arrow and polars: the tables' functions take and give Arrow, and compute with polars inside.

The rule: inside, a time is a whole number of microseconds since 1970 (column `..._us` or said so), so that it can be
subtracted, shifted by a clock's offset and joined without surprises. `to_arrow` makes exactly the schema asked for.
"""

from typing import cast

import polars as pl

from broadloom.record.arrow_import import pa

MINUTE_US = 60_000_000
MICROSECONDS_PER_S = 1_000_000


def to_polars(table: pa.Table) -> pl.DataFrame:
    """With every time as microseconds."""
    frame = cast("pl.DataFrame", pl.from_arrow(table))
    times = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime)]
    return frame.with_columns(pl.col(name).dt.timestamp("us") for name in times)


def to_arrow(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """Exactly these columns, in this order and of these types; numbers become times where the schema says so."""
    table = frame.select(schema.names).to_arrow(compat_level=pl.CompatLevel.oldest())
    plain = pa.schema(
        [pa.field(each.name, pa.int64() if pa.types.is_timestamp(each.type) else each.type) for each in schema]
    )
    return table.cast(plain).cast(pa.schema([pa.field(each.name, each.type) for each in schema]))


def percentile(column: str, permille: int) -> pl.Expr:
    """The smallest value that so many thousandths of all values do not exceed (nearest rank); nulls do not count."""
    values = pl.col(column).drop_nulls().sort()
    rank = (values.len().cast(pl.Int64) * permille + 999) // 1000 - 1
    return values.get(rank.clip(lower_bound=0), null_on_oob=True)


def minute_of(column: str) -> pl.Expr:
    """The beginning of a time's minute."""
    return pl.col(column).floordiv(MINUTE_US) * MINUTE_US
