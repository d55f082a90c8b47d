"""How long messages took from sending to delivery, and over how many links.

Two steps, so that no task needs more than a part: `delays` has all rows of some messages, and gives a row for each
delivery; `percentiles` has all deliveries of some minutes.
"""

import polars as pl

from broadloom.pipeline.arrow.clock_correction import ClockCorrection
from broadloom.pipeline.arrow.frames import minute_of, percentile, to_arrow, to_polars
from broadloom.record.arrow_import import pa

KINDS = ("sent", "delivered")
COLUMNS = ("channel", "kind", "run", "time", "author", "sequence", "hops")
TIME = pa.timestamp("us", tz="UTC")

LATENCIES = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("minute", TIME),
        pa.field("delay_us", pa.int64()),
        pa.field("hops", pa.int64()),
        pa.field("clock_error_us", pa.float64()),
    ]
)
"""The delay is null if the sending is on no tape, or by a clock that nothing ties to that of the receiver."""

PERCENTILES = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("minute", TIME),
        pa.field("deliveries", pa.int64()),
        pa.field("unknown", pa.int64()),
        *(pa.field(f"delay_{name}_us", pa.int64()) for name in ("p50", "p90", "p99", "max")),
        pa.field("clock_error_us", pa.float64()),
        *(pa.field(f"hops_{name}", pa.int64()) for name in ("p50", "p90", "p99", "max")),
    ]
)

_MESSAGE = ["channel", "author", "sequence"]


def latencies(table: pa.Table, correction: ClockCorrection) -> pa.Table:
    """A row for each delivery, by the minute of its sending; by that of its delivery, if nothing else is known."""
    rows = correction.apply(to_polars(table), "run", "time")
    sent = (
        rows.filter(pl.col("kind") == "sent")
        .unique(_MESSAGE, keep="first", maintain_order=True)
        .select(*_MESSAGE, said="time", said_reference="time_reference", said_error="time_error_us")
    )
    got = rows.filter(pl.col("kind") == "delivered").join(sent, on=_MESSAGE, how="left")
    known = pl.col("said_reference") == pl.col("time_reference")
    told = got.with_columns(when=pl.when(known).then("said").otherwise("time")).select(
        "channel",
        "hops",
        minute=minute_of("when"),
        delay_us=pl.when(known).then(pl.col("time") - pl.col("said")),
        # One clock has no error against itself, and every other error is one against the reference.
        clock_error_us=pl.when(known).then(pl.col("time_error_us") + pl.col("said_error")),
    )
    return to_arrow(told, LATENCIES)


def percentiles(table: pa.Table) -> pa.Table:
    """By channel and minute. Which value is meant: the smallest that so many percent do not exceed."""
    ranks = (("p50", 500), ("p90", 900), ("p99", 990), ("max", 1000))
    told = (
        to_polars(table)
        .group_by("channel", "minute")
        .agg(
            deliveries=pl.len().cast(pl.Int64),
            unknown=pl.col("delay_us").null_count().cast(pl.Int64),
            clock_error_us=pl.col("clock_error_us").max(),
            **{f"delay_{name}_us": percentile("delay_us", permille) for name, permille in ranks},
            **{f"hops_{name}": percentile("hops", permille) for name, permille in ranks},
        )
    )
    return to_arrow(told, PERCENTILES)
