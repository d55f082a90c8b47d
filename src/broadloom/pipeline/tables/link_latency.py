"""Latency per link, into each peer and out of each peer.

A histogram over some messages at a time (`latency_histogram`) is added up and read off as percentiles (`link_latency`),
so memory is bounded by the number of links, not of messages. A histogram step is 1.1 % wide, so a percentile is
accurate to about half a percent; the maximum is exact.

Messages that were older than the link came as backfill. They say nothing about its speed and are counted separately.
"""

import polars as pl

from broadloom.pipeline.analysis.clock_correction import ClockCorrection
from broadloom.pipeline.analysis.frames import conform, to_ms
from broadloom.pipeline.engine.events import TEXT as TEXT_CODES
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column

STEPS_PER_DOUBLING = 64

RANKS_MAX = 100
"""Links, receivers and relays listed per channel."""

COLUMNS = (
    CHANNEL,
    column("kind", "`link` (both ends given), `receiver` or `relay` (one end given)."),
    column("slowness_rank", f"1 is the slowest of its kind by median; up to {RANKS_MAX} are listed."),
    column("neighbor", "Peer that passed the messages on; null for a receiver."),
    column("receiver", "Peer that received them; null for a relay."),
    column("sample_count", "First copies that came this way and are timed."),
    column("backfill_count", "Messages older than the link, sent to fill gaps; not timed."),
    column("untimed_count", "Messages not timed because the clocks of the two ends are unrelated."),
    column("latency_p50_ms", "Median latency, accurate to half a percent."),
    column("latency_p90_ms", "90th percentile."),
    column("latency_p99_ms", "99th percentile."),
    column("latency_max_ms", "Longest latency."),
    column("clock_error_ms", "Largest possible error due to clocks."),
)

NOT_POSITIVE, BACKFILL, UNTIMED = -1, -2, -3
"""Steps that are no latency: zero or less because clocks are inexact; backfill; clocks that are unrelated."""


def latency_histogram(crossed: pl.DataFrame, correction: ClockCorrection, links_up: pl.DataFrame) -> pl.DataFrame:
    """Count crossings by link and step. `links_up` has all `link_up` events of the channel (peer, neighbor,
    event_time), by the peer's own clock."""
    ups = links_up.select("neighbor", to_us=pl.col("event_time").dt.timestamp("us"), receiver=pl.col("peer"))
    ups = ups.with_columns(pl.col("receiver", "neighbor").cast(TEXT_CODES), up_us=pl.col("to_us")).sort("to_us")
    timed = crossed.sort("to_us").join_asof(
        ups, on="to_us", by=["receiver", "neighbor"], strategy="backward", check_sortedness=False
    )
    timed = timed.with_columns(recorded_us="to_us")
    timed = correction.apply(correction.apply(timed, "run_to", "to_us"), "run_from", "from_us")
    took = pl.col("to_us") - pl.col("from_us")
    up_us = pl.col("up_us") + pl.col("to_us") - pl.col("recorded_us")
    step = (took.clip(lower_bound=1).cast(pl.Float64).log(2) * STEPS_PER_DOUBLING).floor().cast(pl.Int64)
    counts = timed.select(
        *("neighbor", "receiver"),
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
    return counts.group_by("neighbor", "receiver", "step").agg(
        sample_count=pl.len().cast(pl.Int64),
        longest_us=pl.col("took").max(),
        clock_error_us=pl.col("clock_error_us").max(),
    )


def merge_histograms(parts: pl.DataFrame) -> pl.DataFrame:
    return parts.group_by("channel", "neighbor", "receiver", "step").agg(
        pl.col("sample_count").sum(), pl.col("longest_us").max(), pl.col("clock_error_us").max()
    )


def link_latency(counts: pl.DataFrame) -> pl.DataFrame:
    """The slowest links, receivers and relays of a channel by median, from the histogram of all its links."""
    kinds = (("link", ["neighbor", "receiver"]), ("receiver", ["receiver"]), ("relay", ["neighbor"]))
    ranked = [_ranked(counts, kind, ends) for kind, ends in kinds]
    return conform(pl.concat(ranked, how="diagonal"), COLUMNS)


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
    absent = [pl.lit(None, dtype=pl.String).alias(end) for end in ("neighbor", "receiver") if end not in ends]
    rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("channel")
    ranked = slowest.with_columns(*absent, kind=pl.lit(kind), slowness_rank=rank)
    return ranked.filter(pl.col("slowness_rank") <= RANKS_MAX)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return link_latency(merge_histograms(inputs.scan("link_histogram")))


TABLE = Table(
    "link_latency",
    "Which links and peers are slowest?",
    COLUMNS,
    Stage.FINISH,
    build,
    depends_on=("clock_offsets",),
)
