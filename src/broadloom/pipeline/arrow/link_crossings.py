"""Each crossing of a link by a message: from the moment a peer had it to the moment its neighbour got it from there.

A peer has a message when it says it (`sent`) or gets its first copy (`received`), and hands it on at once. So for
every `received` row the time at the neighbour it came from is known, if that neighbour records too. The difference is
the time over one link, as two clocks show it.
"""

import polars as pl

from broadloom.pipeline.arrow.frames import minute_of, to_arrow, to_polars
from broadloom.record.arrow_import import pa

KINDS = ("sent", "received")
COLUMNS = ("channel", "kind", "run", "time", "observer", "author", "sequence", "neighbour")
MESSAGE = ("channel", "author", "sequence")
"""What names a message: a part of the work has all rows of a message, or none."""

FASTEST = pa.schema(
    [
        pa.field("run_from", pa.string()),
        pa.field("run_to", pa.string()),
        pa.field("minute", pa.int64()),
        pa.field("fastest_us", pa.int64()),
        pa.field("at_us", pa.int64()),
        pa.field("crossings", pa.int64()),
    ]
)
"""The fastest crossing between two runs in a minute. Minute and `at_us` are by the clock of the run that comes first
in the alphabet, so that both directions of a pair count the same minutes."""


def crossings(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a first copy that came from a peer that records: both ends, both runs, both times."""
    holders = rows.select(
        *MESSAGE, neighbour=pl.col("observer"), run_from=pl.col("run"), from_us=pl.col("time")
    ).unique([*MESSAGE, "neighbour"], keep="first", maintain_order=True)
    came = rows.filter(pl.col("kind") == "received")
    return came.select(*MESSAGE, "observer", "neighbour", run_to="run", to_us="time").join(
        holders, on=[*MESSAGE, "neighbour"], how="inner"
    )


def fastest(table: pa.Table) -> pa.Table:
    """The fastest crossings between different runs, by pair, direction and minute."""
    rows = crossings(to_polars(table)).filter(pl.col("run_from") != pl.col("run_to"))
    stamp = pl.when(pl.col("run_from") < pl.col("run_to")).then("from_us").otherwise("to_us")
    rows = rows.select("run_from", "run_to", at_us=stamp, took_us=pl.col("to_us") - pl.col("from_us"))
    rows = rows.with_columns(minute=minute_of("at_us"))
    best = rows.group_by("run_from", "run_to", "minute").agg(
        fastest_us=pl.col("took_us").min(),
        at_us=pl.col("at_us").sort_by("took_us").first(),
        crossings=pl.len().cast(pl.Int64),
    )
    return to_arrow(best, FASTEST)
