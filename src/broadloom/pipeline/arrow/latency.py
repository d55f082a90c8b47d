"""Latency and hops of deliveries.

In two steps, so that no task needs more than a part of the rows: `latencies` has all rows of some messages and returns
one row per delivery; `percentiles` has all deliveries of some minutes.
"""

import polars as pl

from broadloom.pipeline.arrow.clock_correction import ClockCorrection
from broadloom.pipeline.arrow.frames import minute_of, percentile, to_arrow, to_ms, to_polars
from broadloom.record.arrow_import import pa

KINDS = ("sent", "delivered")
COLUMNS = ("channel", "kind", "run_id", "event_time", "author", "sequence", "hops")
TIME = pa.timestamp("us", tz="UTC")

LATENCIES = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("start_time", TIME),
        pa.field("latency_ms", pa.float64()),
        pa.field("hops", pa.int64()),
        pa.field("clock_error_ms", pa.float64()),
    ]
)
"""The latency is null if the sending is on no tape, or its clock is unrelated to the receiver's."""

PERCENTILES = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("start_time", TIME),
        pa.field("delivery_count", pa.int64()),
        pa.field("untimed_count", pa.int64()),
        *(pa.field(f"latency_{name}_ms", pa.float64()) for name in ("p50", "p90", "p99", "max")),
        pa.field("clock_error_ms", pa.float64()),
        *(pa.field(f"hops_{name}", pa.int64()) for name in ("p50", "p90", "p99", "max")),
    ]
)

_MESSAGE = ["channel", "author", "sequence"]


def latencies(table: pa.Table, correction: ClockCorrection) -> pa.Table:
    """One row per delivery, by the minute of the sending; if that is unknown, of the delivery."""
    rows = correction.apply(to_polars(table), "run_id", "event_time")
    sent = (
        rows.filter(pl.col("kind") == "sent")
        .unique(_MESSAGE, keep="first", maintain_order=True)
        .select(
            *_MESSAGE,
            sent_time="event_time",
            sent_reference="event_time_reference",
            sent_error_us="event_time_error_us",
        )
    )
    delivered = rows.filter(pl.col("kind") == "delivered").join(sent, on=_MESSAGE, how="left")
    is_timed = pl.col("sent_reference") == pl.col("event_time_reference")
    found = delivered.with_columns(counted_at=pl.when(is_timed).then("sent_time").otherwise("event_time")).select(
        "channel",
        "hops",
        start_time=minute_of("counted_at"),
        latency_ms=pl.when(is_timed).then(to_ms(pl.col("event_time") - pl.col("sent_time"))),
        # Both errors are relative to the reference clock, so they add up.
        clock_error_ms=pl.when(is_timed).then((pl.col("event_time_error_us") + pl.col("sent_error_us")) / 1000),
    )
    return to_arrow(found, LATENCIES)


def percentiles(table: pa.Table) -> pa.Table:
    """Nearest-rank percentiles by channel and minute."""
    ranks = (("p50", 500), ("p90", 900), ("p99", 990), ("max", 1000))
    found = (
        to_polars(table)
        .group_by("channel", "start_time")
        .agg(
            delivery_count=pl.len().cast(pl.Int64),
            untimed_count=pl.col("latency_ms").null_count().cast(pl.Int64),
            clock_error_ms=pl.col("clock_error_ms").max(),
            **{f"latency_{name}_ms": percentile("latency_ms", permille) for name, permille in ranks},
            **{f"hops_{name}": percentile("hops", permille) for name, permille in ranks},
        )
    )
    return to_arrow(found, PERCENTILES)
