"""Latency and hops from sending to delivery per minute, with clocks corrected.

In two steps, so that no task needs more than a part of the rows: `count_latencies` counts the latencies of a part by
minute; `percentiles` reads the exact percentiles off the counts of all parts.
"""

from collections.abc import Callable

import polars as pl

from broadloom.pipeline.analysis.clock_correction import ClockCorrection
from broadloom.pipeline.analysis.frames import MINUTE_US, conform, to_ms
from broadloom.pipeline.engine.events import TEXT as TEXT_CODES
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column

COLUMNS = (
    CHANNEL,
    column("start_time", "Minute in which the messages were sent; if unknown, delivered."),
    column("delivery_count", "Deliveries of these messages."),
    column("untimed_count", "Deliveries without a latency: the sending is on no tape, or the clocks are unrelated."),
    column("latency_p50_ms", "Median latency."),
    column("latency_p90_ms", "90th percentile."),
    column("latency_p99_ms", "99th percentile."),
    column("latency_max_ms", "Longest latency."),
    column("clock_error_ms", "Largest possible error due to clocks; see `clock_offsets`."),
    column("hops_p50", "Median number of links traveled."),
    column("hops_p90", "90th percentile."),
    column("hops_p99", "99th percentile."),
    column("hops_max", "Most links traveled."),
)

EVENT_COLUMNS = ("kind", "run_id", "event_time", "author", "sequence", "hops")
_RANKS = (("p50", 500), ("p90", 900), ("p99", 990), ("max", 1000))
_MESSAGE = ["author", "sequence"]
LATENCY, HOPS = "latency", "hops"


def latencies(events: pl.DataFrame, messages: pl.DataFrame, correction: ClockCorrection) -> pl.DataFrame:
    """One row per delivery, by the minute of the sending; if that is unknown, of the delivery.

    `messages` has author, sequence, run_id and `sent_time` of the messages that their author recorded. The latency is
    null if the sending is on no tape, or its clock is unrelated to the receiver's.
    """
    sent = messages.select(
        pl.col("author", "run_id").cast(TEXT_CODES), "sequence", sent_us=pl.col("sent_time").dt.timestamp("us")
    )
    sent = correction.apply(sent, "run_id", "sent_us").drop("run_id")
    delivered = events.filter(pl.col("kind") == "delivered").select(
        *("author", "sequence", "hops", "run_id"), at_us=pl.col("event_time").dt.timestamp("us")
    )
    both = correction.apply(delivered, "run_id", "at_us").join(sent, on=_MESSAGE, how="left")
    is_timed = pl.col("sent_us_reference") == pl.col("at_us_reference")
    counted_at = pl.when(is_timed).then("sent_us").otherwise("at_us")
    return both.select(
        "hops",
        start_time=counted_at.floordiv(MINUTE_US) * MINUTE_US,
        latency_us=pl.when(is_timed).then(pl.col("at_us") - pl.col("sent_us")),
        # Both errors are relative to the reference clock, so they add up.
        clock_error_ms=pl.when(is_timed).then((pl.col("at_us_error_us") + pl.col("sent_us_error_us")) / 1000),
    )


def count_latencies(rows: pl.DataFrame) -> pl.DataFrame:
    """How often each latency and each number of hops occurred in each minute."""
    count = {"count": pl.len().cast(pl.Int64)}
    by_latency = rows.group_by("start_time", value="latency_us").agg(
        **count, clock_error_ms=pl.col("clock_error_ms").max()
    )
    by_hops = rows.group_by("start_time", value="hops").agg(**count)
    return pl.concat(
        [
            by_latency.with_columns(measure=pl.lit(LATENCY)),
            by_hops.with_columns(measure=pl.lit(HOPS), clock_error_ms=pl.lit(None, pl.Float64)).select(
                "start_time", "value", "count", "clock_error_ms", "measure"
            ),
        ]
    )


def percentiles(counts: pl.DataFrame) -> pl.DataFrame:
    """Nearest-rank percentiles by channel and minute."""
    keys = ["channel", "start_time"]
    is_latency = pl.col("measure") == LATENCY
    totals = (
        counts.filter(is_latency)
        .group_by(keys)
        .agg(
            delivery_count=pl.col("count").sum(),
            untimed_count=pl.col("count").filter(pl.col("value").is_null()).sum(),
            clock_error_ms=pl.col("clock_error_ms").max(),
        )
    )
    timed = counts.drop_nulls("value")
    by_latency = _ranked(timed.filter(is_latency), keys, "latency_{}_ms", to_ms)
    by_hops = _ranked(timed.filter(~is_latency), keys, "hops_{}", lambda value: value)
    found = totals.join(by_latency, on=keys, how="left").join(by_hops, on=keys, how="left")
    return conform(found.sort(keys), COLUMNS)


def _ranked(counts: pl.DataFrame, keys: list[str], name: str, shown: Callable[[pl.Expr], pl.Expr]) -> pl.DataFrame:
    rows = counts.group_by(*keys, "value").agg(pl.col("count").sum()).sort(*keys, "value")
    rows = rows.with_columns(cumulative=pl.col("count").cum_sum().over(keys), total=pl.col("count").sum().over(keys))
    return rows.group_by(keys).agg(
        **{
            name.format(rank): shown(
                pl.col("value").filter(pl.col("cumulative") * 1000 >= pl.col("total") * permille).first()
            )
            for rank, permille in _RANKS
        }
    )


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return percentiles(inputs.scan("latency_counts"))


TABLE = Table(
    "latency",
    "How long did deliveries take, and over how many hops?",
    COLUMNS,
    Stage.FINISH,
    build,
    depends_on=("messages", "clock_offsets"),
)
