"""Crossings of links by messages: from the time a peer has a message to the time its neighbor gets it from there.

A peer has a message when it sends it (`sent`) or receives its first copy (`received`), and relays it at once. So for
every `received` event the time at the sending neighbor is known, if that neighbor records too. The difference is the
time over one link, as shown by two clocks.
"""

import polars as pl

from broadloom.pipeline.arrow.frames import minute_of, to_arrow, to_polars
from broadloom.record.arrow_import import pa

KINDS = ("sent", "received")
COLUMNS = ("channel", "kind", "run_id", "event_time", "peer", "author", "sequence", "neighbor")
MESSAGE = ("channel", "author", "sequence")
"""Identifies a message: a task has all rows of a message, or none."""

FASTEST = pa.schema(
    [
        pa.field("run_from", pa.string()),
        pa.field("run_to", pa.string()),
        pa.field("minute_us", pa.int64()),
        pa.field("fastest_us", pa.int64()),
        pa.field("at_us", pa.int64()),
        pa.field("sample_count", pa.int64()),
    ]
)
"""The fastest crossing between two runs in a minute. `minute_us` and `at_us` are by the clock of the run whose ID sorts
first, so that both directions of a pair use the same minutes."""


def crossings(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per first copy that came from a recording peer: both ends, both runs, both times."""
    holders = rows.select(
        *MESSAGE, sender_peer=pl.col("peer"), run_from=pl.col("run_id"), from_us=pl.col("event_time")
    ).unique([*MESSAGE, "sender_peer"], keep="first", maintain_order=True)
    received = rows.filter(pl.col("kind") == "received")
    return received.select(*MESSAGE, receiver="peer", sender_peer="neighbor", run_to="run_id", to_us="event_time").join(
        holders, on=[*MESSAGE, "sender_peer"], how="inner"
    )


def fastest(table: pa.Table) -> pa.Table:
    """The fastest crossings between different runs, by pair, direction and minute."""
    rows = crossings(to_polars(table)).filter(pl.col("run_from") != pl.col("run_to"))
    stamp = pl.when(pl.col("run_from") < pl.col("run_to")).then("from_us").otherwise("to_us")
    rows = rows.select("run_from", "run_to", at_us=stamp, took_us=pl.col("to_us") - pl.col("from_us"))
    rows = rows.with_columns(minute_us=minute_of("at_us"))
    best = rows.group_by("run_from", "run_to", "minute_us").agg(
        fastest_us=pl.col("took_us").min(),
        at_us=pl.col("at_us").sort_by("took_us").first(),
        sample_count=pl.len().cast(pl.Int64),
    )
    return to_arrow(best, FASTEST)
