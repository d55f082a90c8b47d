"""Latency from sending to delivery, as histograms that batches add to until the window is final.

The sending and the deliveries of a message are on tapes of different peers and arrive in any order. So sendings are
kept as long as a delivery can be on time, and deliveries wait for their sending until their window is final. Histogram
buckets grow by 2 %, so a percentile is accurate to 1 %, whatever the number of rows.
"""

import math

import polars as pl

from broadloom.pipeline.live.watermark import Watermark

GROWTH = 1.02
_LOG = math.log(GROWTH)
NOT_POSITIVE = -1
"""The bucket of deliveries that seem to come before their sending."""

SENT = pl.Schema({"author": pl.String, "sequence": pl.Int64, "sent_us": pl.Int64})
UNMATCHED = pl.Schema({"author": pl.String, "sequence": pl.Int64, "event_time": pl.Int64, "hops": pl.Int64})
BUCKETS = pl.Schema(
    {
        "start_time": pl.Int64,
        "bucket": pl.Int64,
        "delivery_count": pl.Int64,
        "latency_us": pl.Int64,
        "latency_max_us": pl.Int64,
        "hops": pl.Int64,
        "hops_max": pl.Int64,
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
    """The new state (sendings, waiting deliveries, buckets), and the rows of all windows.

    `keep_us` is how long beyond the watermark a sending is kept.
    """
    new_sent = events.filter(pl.col("kind") == "sent").select(*_KEY, sent_us="event_time")
    sent = pl.concat([sent, new_sent]).group_by(_KEY).agg(pl.col("sent_us").min())
    delivered = events.filter(pl.col("kind") == "delivered").select(UNMATCHED.names())
    paired = pl.concat([unmatched, delivered]).join(sent, on=_KEY, how="left")
    unmatched = paired.filter(pl.col("sent_us").is_null()).select(UNMATCHED.names())
    buckets = _add_to_buckets(buckets, paired.filter(pl.col("sent_us").is_not_null()), watermark)
    untimed = unmatched.group_by(start_time=watermark.window_of("event_time")).agg(
        untimed_count=pl.len().cast(pl.Int64)
    )
    rows = (
        _percentiles(buckets)
        .join(untimed, on="start_time", how="full", coalesce=True)
        .with_columns(
            pl.col("delivery_count", "negative_count", "untimed_count").fill_null(0),
            is_final=watermark.is_final("start_time"),
        )
        .sort("start_time")
    )
    return (
        sent.filter(pl.col("sent_us") >= watermark.after_us - keep_us),
        unmatched.filter(~watermark.is_final_time("event_time")),
        buckets.filter(~watermark.is_final("start_time")),
        rows,
    )


def _add_to_buckets(buckets: pl.DataFrame, paired: pl.DataFrame, watermark: Watermark) -> pl.DataFrame:
    latency = pl.col("event_time") - pl.col("sent_us")
    bucket = pl.when(latency <= 0).then(NOT_POSITIVE).otherwise(latency.clip(1).log(GROWTH).floor().cast(pl.Int64))
    new = paired.select(
        start_time=watermark.window_of("event_time"),
        bucket=bucket.cast(pl.Int64),
        delivery_count=pl.lit(1, pl.Int64),
        latency_us=latency.clip(0),
        latency_max_us=latency.clip(0),
        hops=pl.col("hops").fill_null(0),
        hops_max=pl.col("hops"),
    )
    sums, maxima = ("delivery_count", "latency_us", "hops"), ("latency_max_us", "hops_max")
    return (
        pl.concat([buckets, new])
        .group_by("start_time", "bucket")
        .agg(*(pl.col(name).sum() for name in sums), *(pl.col(name).max() for name in maxima))
        .select(BUCKETS.names())
    )


def _percentiles(buckets: pl.DataFrame) -> pl.DataFrame:
    """Nearest-rank percentiles."""
    bucket, count = pl.col("bucket"), pl.col("delivery_count")
    middle = pl.when(bucket == NOT_POSITIVE).then(0.0).otherwise(((bucket + 0.5) * _LOG).exp() / 1000)
    ranked = buckets.sort("start_time", "bucket").with_columns(
        # Never more than the longest latency in the bucket.
        latency_ms=pl.min_horizontal(middle, pl.col("latency_max_us") / 1000),
        cumulative=count.cum_sum().over("start_time"),
        total=count.sum().over("start_time"),
    )

    def percentile(ratio: float) -> pl.Expr:
        return pl.col("latency_ms").filter(pl.col("cumulative") >= (pl.col("total") * ratio).ceil()).first()

    return ranked.group_by("start_time").agg(
        count.sum(),
        latency_mean_ms=pl.col("latency_us").sum() / count.sum() / 1000,
        latency_p50_ms=percentile(0.5),
        latency_p90_ms=percentile(0.9),
        latency_p99_ms=percentile(0.99),
        latency_max_ms=pl.col("latency_max_us").max() / 1000,
        hops_mean=pl.col("hops").sum() / count.sum(),
        hops_max=pl.col("hops_max").max(),
        negative_count=count.filter(bucket == NOT_POSITIVE).sum(),
    )
