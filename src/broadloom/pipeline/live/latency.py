"""Latency: from sending to delivery, as histograms that later batches add to, until the window is final.

A message's sending and its deliveries stand on the tapes of different peers, and come in any order. So sendings are
kept as long as a delivery of theirs can be on time, and deliveries wait for their sending until their window is final.
Delays go into buckets that grow by 2 %, so a percentile is right to 1 %, whatever the number of rows.
"""

import math

import polars as pl

from broadloom.pipeline.live.watermark import Watermark

GROWTH = 1.02
NO_DELAY = -1
"""The bucket of deliveries that seem to come before their sending."""

SENT = pl.Schema({"author": pl.String, "sequence": pl.Int64, "sent_us": pl.Int64})
UNMATCHED = pl.Schema({"author": pl.String, "sequence": pl.Int64, "time": pl.Int64, "hops": pl.Int64})
BUCKETS = pl.Schema(
    {
        "start": pl.Int64,
        "bucket": pl.Int64,
        "deliveries": pl.Int64,
        "delay_us": pl.Int64,
        "max_us": pl.Int64,
        "hops": pl.Int64,
        "max_hops": pl.Int64,
    }
)
_KEY = ["author", "sequence"]


def step(
    sent: pl.DataFrame,
    unmatched: pl.DataFrame,
    buckets: pl.DataFrame,
    events: pl.DataFrame,
    watermark: Watermark,
    keep_us: int,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Sendings, waiting deliveries and buckets to be kept, and the rows of all windows with `final`.

    `keep_us` is how much longer than the watermark a sending is kept.
    """
    fresh = events.filter(pl.col("kind") == "sent").select(*_KEY, sent_us="time")
    sent = pl.concat([sent, fresh]).group_by(_KEY).agg(pl.col("sent_us").min())
    delivered = events.filter(pl.col("kind") == "delivered").select(UNMATCHED.names())
    paired = pl.concat([unmatched, delivered]).join(sent, on=_KEY, how="left")
    unmatched = paired.filter(pl.col("sent_us").is_null()).select(UNMATCHED.names())
    buckets = _add_to_buckets(buckets, paired.filter(pl.col("sent_us").is_not_null()), watermark)
    lacking = unmatched.group_by(start=watermark.window_of("time")).agg(unmatched=pl.len().cast(pl.Int64))
    told = (
        _percentiles(buckets)
        .join(lacking, on="start", how="full", coalesce=True)
        .with_columns(pl.col("deliveries", "backward", "unmatched").fill_null(0), final=watermark.is_final("start"))
        .sort("start")
    )
    return (
        sent.filter(pl.col("sent_us") >= watermark.after_us - keep_us),
        unmatched.filter(~watermark.is_final_time("time")),
        buckets.filter(~watermark.is_final("start")),
        told,
    )


def _add_to_buckets(buckets: pl.DataFrame, paired: pl.DataFrame, watermark: Watermark) -> pl.DataFrame:
    delay = pl.col("time") - pl.col("sent_us")
    bucket = pl.when(delay <= 0).then(NO_DELAY).otherwise(delay.clip(1).log(GROWTH).floor().cast(pl.Int64))
    fresh = paired.select(
        start=watermark.window_of("time"),
        bucket=bucket.cast(pl.Int64),
        deliveries=pl.lit(1, pl.Int64),
        delay_us=delay.clip(0),
        max_us=delay.clip(0),
        hops=pl.col("hops").fill_null(0),
        max_hops=pl.col("hops"),
    )
    sums = ("deliveries", "delay_us", "hops")
    return (
        pl.concat([buckets, fresh])
        .group_by("start", "bucket")
        .agg(*(pl.col(name).sum() for name in sums), *(pl.col(name).max() for name in ("max_us", "max_hops")))
        .select(BUCKETS.names())
    )


def _percentiles(buckets: pl.DataFrame) -> pl.DataFrame:
    """Percentiles by nearest rank: the first bucket by which so many were counted."""
    middle = pl.when(pl.col("bucket") == NO_DELAY).then(0.0).otherwise(((pl.col("bucket") + 0.5) * _LOG).exp() / 1000)
    ranked = buckets.sort("start", "bucket").with_columns(
        # A delay cannot be longer than the longest of its bucket.
        ms=pl.min_horizontal(middle, pl.col("max_us") / 1000),
        counted=pl.col("deliveries").cum_sum().over("start"),
        all=pl.col("deliveries").sum().over("start"),
    )

    def percentile(share: float) -> pl.Expr:
        return pl.col("ms").filter(pl.col("counted") >= (pl.col("all") * share).ceil()).first()

    return ranked.group_by("start").agg(
        pl.col("deliveries").sum(),
        mean_ms=pl.col("delay_us").sum() / pl.col("deliveries").sum() / 1000,
        p50_ms=percentile(0.5),
        p90_ms=percentile(0.9),
        p99_ms=percentile(0.99),
        max_ms=pl.col("max_us").max() / 1000,
        mean_hops=pl.col("hops").sum() / pl.col("deliveries").sum(),
        max_hops=pl.col("max_hops").max(),
        backward=pl.col("deliveries").filter(pl.col("bucket") == NO_DELAY).sum(),
    )


_LOG = math.log(GROWTH)
