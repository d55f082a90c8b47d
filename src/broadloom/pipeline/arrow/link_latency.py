"""Latency per link, into each peer and out of each peer.

A histogram over some messages at a time (`latency_histogram`) is added up and read off as percentiles (`link_latency`),
so memory is bounded by the number of links, not of messages. A histogram step is 1.1 % wide, so a percentile is
accurate to about half a percent; the maximum is exact.

Messages that were older than the link came as backfill. They say nothing about its speed and are counted separately.
"""

import polars as pl

from broadloom.pipeline.arrow.clock_correction import ClockCorrection
from broadloom.pipeline.arrow.frames import to_arrow, to_ms, to_polars
from broadloom.pipeline.arrow.link_crossings import crossings
from broadloom.record.arrow_import import pa

STEPS_PER_DOUBLING = 64

RANKS_MAX = 100
"""Links, receivers and relays listed per channel."""

HISTOGRAM = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("sender_peer", pa.string()),
        pa.field("receiver", pa.string()),
        pa.field("step", pa.int64()),
        pa.field("sample_count", pa.int64()),
        pa.field("longest_us", pa.int64()),
        pa.field("clock_error_us", pa.float64()),
    ]
)

NOT_POSITIVE, BACKFILL, UNTIMED = -1, -2, -3
"""Steps that are no latency: zero or less because clocks are inexact; backfill; clocks that are unrelated."""

LINK_LATENCY = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("slowness_rank", pa.int64()),
        pa.field("sender_peer", pa.string()),
        pa.field("receiver", pa.string()),
        pa.field("sample_count", pa.int64()),
        pa.field("backfill_count", pa.int64()),
        pa.field("untimed_count", pa.int64()),
        *(pa.field(f"latency_{name}_ms", pa.float64()) for name in ("p50", "p90", "p99", "max")),
        pa.field("clock_error_ms", pa.float64()),
    ]
)


def latency_histogram(table: pa.Table, correction: ClockCorrection, links_up: pa.Table) -> pa.Table:
    """Count the crossings of some messages by link and step. `links_up` has all `link_up` events (channel, peer,
    neighbor, event_time), by the peer's own clock."""
    crossed = crossings(to_polars(table))
    link_ups = (
        to_polars(links_up)
        .select("channel", receiver="peer", sender_peer="neighbor", to_us="event_time", up_us="event_time")
        .sort("to_us")
    )
    crossed = crossed.sort("to_us").join_asof(
        link_ups, on="to_us", by=["channel", "receiver", "sender_peer"], strategy="backward", check_sortedness=False
    )
    crossed = crossed.with_columns(recorded_us="to_us")
    crossed = correction.apply(correction.apply(crossed, "run_to", "to_us"), "run_from", "from_us")
    took = pl.col("to_us") - pl.col("from_us")
    up_us = pl.col("up_us") + pl.col("to_us") - pl.col("recorded_us")
    step = (took.clip(lower_bound=1).cast(pl.Float64).log(2) * STEPS_PER_DOUBLING).floor().cast(pl.Int64)
    counts = (
        crossed.with_columns(
            took=took,
            step=pl.when(pl.col("to_us_reference") != pl.col("from_us_reference"))
            .then(UNTIMED)
            .when(pl.col("from_us") < up_us)
            .then(BACKFILL)
            .when(took <= 0)
            .then(NOT_POSITIVE)
            .otherwise(step),
            clock_error_us=pl.when(pl.col("run_to") != pl.col("run_from"))
            .then(pl.col("to_us_error_us") + pl.col("from_us_error_us"))
            .otherwise(0.0),
        )
        .group_by("channel", "sender_peer", "receiver", "step")
        .agg(
            sample_count=pl.len().cast(pl.Int64),
            longest_us=pl.col("took").max(),
            clock_error_us=pl.col("clock_error_us").max(),
        )
    )
    return to_arrow(counts, HISTOGRAM)


def link_latency(table: pa.Table) -> pa.Table:
    """The slowest links, receivers and relays of a channel by median, from the histogram of all its links."""
    counts = to_polars(table)
    kinds = (("link", ["sender_peer", "receiver"]), ("receiver", ["receiver"]), ("relay", ["sender_peer"]))
    ranked = [_ranked(counts, kind, ends) for kind, ends in kinds]
    return to_arrow(pl.concat(ranked, how="diagonal"), LINK_LATENCY)


def _ranked(counts: pl.DataFrame, kind: str, ends: list[str]) -> pl.DataFrame:
    keys = ["channel", *ends]
    count = pl.col("sample_count")
    timed = (
        counts.filter(pl.col("step") >= NOT_POSITIVE)
        .group_by(*keys, "step")
        .agg(count.sum(), pl.col("longest_us").max(), pl.col("clock_error_us").max())
        .sort(*keys, "step")
        .with_columns(cumulative=count.cum_sum().over(keys), total=count.sum().over(keys))
    )
    # The middle of a step, but never more than the longest time in it.
    middle = pl.lit(2.0).pow((pl.col("step") + 0.5) / STEPS_PER_DOUBLING).round().cast(pl.Int64)
    value = pl.when(pl.col("step") < 0).then(0).otherwise(pl.min_horizontal(middle, pl.col("longest_us")))

    def percentile(permille: int) -> pl.Expr:
        return to_ms(value.filter(pl.col("cumulative") * 1000 >= pl.col("total") * permille).first())

    percentiles = timed.group_by(keys).agg(
        sample_count=count.sum(),
        latency_p50_ms=percentile(500),
        latency_p90_ms=percentile(900),
        latency_p99_ms=percentile(990),
        latency_max_ms=to_ms(pl.col("longest_us").max()),
        clock_error_ms=pl.col("clock_error_us").max() / 1000,
    )
    untimed = counts.group_by(keys).agg(
        backfill_count=count.filter(pl.col("step") == BACKFILL).sum(),
        untimed_count=count.filter(pl.col("step") == UNTIMED).sum(),
    )
    slowest = percentiles.join(untimed, on=keys).sort(
        ["latency_p50_ms", "latency_p99_ms", *ends], descending=[True, True, *(False for _ in ends)]
    )
    absent = [pl.lit(None, dtype=pl.String).alias(end) for end in ("sender_peer", "receiver") if end not in ends]
    rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("channel")
    ranked = slowest.with_columns(*absent, kind=pl.lit(kind), slowness_rank=rank)
    return ranked.filter(pl.col("slowness_rank") <= RANKS_MAX)
