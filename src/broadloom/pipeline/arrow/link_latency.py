"""Which links and peers are slow: how long messages take over each link, and into and out of each peer.

Counts in narrow steps of time (`steps`) are made of some messages at a time, added up, and read off as percentiles
(`slowest`); so the work is bounded by the number of links, not of messages. A step is 1.1 % wide, so a percentile is
exact to about half a percent; the maximum is exact.

Messages that were already old when the link came up were brought by it to make up for what its end had missed. They
say nothing of the link's speed and are counted apart.
"""

import polars as pl

from broadloom.pipeline.arrow.clock_correction import ClockCorrection
from broadloom.pipeline.arrow.frames import to_arrow, to_polars
from broadloom.pipeline.arrow.link_crossings import crossings
from broadloom.record.arrow_import import pa

STEPS_PER_DOUBLING = 64
"""So a step is 1.1 % wide."""

RANKS_MAX = 100
"""Links, and peers, that are told of each channel."""

COUNTS = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("neighbour", pa.string()),
        pa.field("observer", pa.string()),
        pa.field("step", pa.int64()),
        pa.field("crossings", pa.int64()),
        pa.field("longest_us", pa.int64()),
        pa.field("clock_error_us", pa.float64()),
    ]
)
"""Steps below zero are no times: see `NOT_POSITIVE`, `CAUGHT_UP`, `UNKNOWN`."""

NOT_POSITIVE, BACKFILL, UNTIMED = -1, -2, -3
"""Zero or less, by clocks that are not exact; made up for what was missed; by clocks that nothing ties together."""

LINK_LATENCY = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("what", pa.string()),
        pa.field("rank", pa.int64()),
        pa.field("neighbour", pa.string()),
        pa.field("observer", pa.string()),
        pa.field("crossings", pa.int64()),
        pa.field("caught_up", pa.int64()),
        pa.field("unknown", pa.int64()),
        *(pa.field(f"took_{name}_us", pa.int64()) for name in ("p50", "p90", "p99", "max")),
        pa.field("clock_error_us", pa.float64()),
    ]
)


def latency_histogram(table: pa.Table, correction: ClockCorrection, links_up: pa.Table) -> pa.Table:
    """Crossings of some messages, counted by link and step. `links_up` has all rows of that kind (channel, observer,
    neighbour, time), by the observer's own clock."""
    crossed = crossings(to_polars(table))
    ups = to_polars(links_up).select("channel", "observer", "neighbour", to_us="time", up_us="time").sort("to_us")
    crossed = crossed.sort("to_us").join_asof(
        ups, on="to_us", by=["channel", "observer", "neighbour"], strategy="backward", check_sortedness=False
    )
    crossed = crossed.with_columns(shown_us="to_us")
    crossed = correction.apply(correction.apply(crossed, "run_to", "to_us"), "run_from", "from_us")
    took = pl.col("to_us") - pl.col("from_us")
    up_us = pl.col("up_us") + pl.col("to_us") - pl.col("shown_us")
    step = (took.clip(lower_bound=1).cast(pl.Float64).log(2) * STEPS_PER_DOUBLING).floor().cast(pl.Int64)
    told = (
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
        .group_by("channel", "neighbour", "observer", "step")
        .agg(
            crossings=pl.len().cast(pl.Int64),
            longest_us=pl.col("took").max(),
            clock_error_us=pl.col("clock_error_us").max(),
        )
    )
    return to_arrow(told, COUNTS)


def link_latency(table: pa.Table) -> pa.Table:
    """The slowest links, receivers and relays of a channel, by their middle time, from the counts of all its links."""
    counts = to_polars(table)
    told = [
        _ranked(counts, what, ends)
        for what, ends in (("link", ["neighbour", "observer"]), ("receiver", ["observer"]), ("relay", ["neighbour"]))
    ]
    return to_arrow(pl.concat(told, how="diagonal"), LINK_LATENCY)


def _ranked(counts: pl.DataFrame, kind: str, ends: list[str]) -> pl.DataFrame:
    keys = ["channel", *ends]
    timed = (
        counts.filter(pl.col("step") >= NOT_POSITIVE)
        .group_by(*keys, "step")
        .agg(pl.col("crossings").sum(), pl.col("longest_us").max(), pl.col("clock_error_us").max())
        .sort(*keys, "step")
        .with_columns(so_far=pl.col("crossings").cum_sum().over(keys), all=pl.col("crossings").sum().over(keys))
    )
    # The middle of a step, but never more than the longest of its times.
    middle = pl.lit(2.0).pow((pl.col("step") + 0.5) / STEPS_PER_DOUBLING).round().cast(pl.Int64)
    value = pl.when(pl.col("step") < 0).then(0).otherwise(pl.min_horizontal(middle, pl.col("longest_us")))

    def rank(permille: int) -> pl.Expr:
        return value.filter(pl.col("so_far") * 1000 >= pl.col("all") * permille).first()

    percentiles = timed.group_by(keys).agg(
        crossings=pl.col("crossings").sum(),
        took_p50_us=rank(500),
        took_p90_us=rank(900),
        took_p99_us=rank(990),
        took_max_us=pl.col("longest_us").max(),
        clock_error_us=pl.col("clock_error_us").max(),
    )
    apart = counts.group_by(keys).agg(
        caught_up=pl.col("crossings").filter(pl.col("step") == BACKFILL).sum(),
        unknown=pl.col("crossings").filter(pl.col("step") == UNTIMED).sum(),
    )
    slow = percentiles.join(apart, on=keys).sort(
        ["took_p50_us", "took_p99_us", *ends], descending=[True, True, *(False for _ in ends)]
    )
    missing = [pl.lit(None, dtype=pl.String).alias(end) for end in ("neighbour", "observer") if end not in ends]
    return slow.with_columns(
        *missing, what=pl.lit(kind), rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("channel")
    ).filter(pl.col("rank") <= RANKS_MAX)
