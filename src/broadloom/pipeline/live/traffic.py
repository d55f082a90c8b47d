"""Events per window and kind: sums that batches add to until the window is final."""

import polars as pl

from broadloom.pipeline.live.watermark import Watermark
from broadloom.pipeline.tables.deliveries import MISSED_MAX
from broadloom.record.schema import EventKind

_SUMS = (
    *("event_count", "sent_count", "received_count", "delivered_count", "duplicate_count", "missed_count"),
    *("dropped_row_count", "sent_bytes", "delivered_bytes"),
)

SUMS = pl.Schema({"start_time": pl.Int64, **dict.fromkeys(_SUMS, pl.Int64)})
PEERS = pl.Schema({"start_time": pl.Int64, "role": pl.String, "peer": pl.String})
"""Peers seen in a window. They are kept one by one, because distinct counts cannot be added up."""


def step(
    sums: pl.DataFrame, peers: pl.DataFrame, events: pl.DataFrame, watermark: Watermark
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The new state (sums and peers of open windows), and the rows of all windows."""
    new = events.with_columns(start_time=watermark.window_of("event_time"))
    sums = (
        pl.concat([sums, new.group_by("start_time").agg(**_sums()).select(SUMS.names())])
        .group_by("start_time")
        .sum()
        .select(SUMS.names())
    )
    authors = new.filter(pl.col("kind").is_in(["sent", "delivered"])).select("start_time", peer="author")
    recorders = new.select("start_time", "peer")
    seen = [
        part.with_columns(role=pl.lit(role)).select(PEERS.names()).unique().drop_nulls()
        for role, part in (("author", authors), ("recorder", recorders))
    ]
    peers = pl.concat([peers, *seen]).unique()
    counts = peers.group_by("start_time").agg(
        peer_count=(pl.col("role") == "recorder").sum().cast(pl.Int64),
        author_count=(pl.col("role") == "author").sum().cast(pl.Int64),
    )
    is_final = watermark.is_final("start_time")
    rows = (
        sums.join(counts, on="start_time", how="left")
        .with_columns(pl.col("peer_count", "author_count").fill_null(0), is_final=is_final)
        .sort("start_time")
    )
    return sums.filter(~is_final), peers.filter(~is_final), rows


def _sums() -> dict[str, pl.Expr]:
    def is_kind(kind: str) -> pl.Expr:
        return pl.col("kind") == kind

    def total(kind: str, column: str) -> pl.Expr:
        return pl.col(column).filter(is_kind(kind)).sum().cast(pl.Int64)

    # A forged report may have any range; as in `deliveries`, it counts up to a limit.
    missed = (pl.coalesce("last_sequence", "sequence") - pl.col("sequence")).clip(0, MISSED_MAX - 1) + 1
    return {
        "event_count": pl.len().cast(pl.Int64),
        **{f"{kind}_count": is_kind(kind).sum().cast(pl.Int64) for kind in ("sent", "received", "delivered")},
        "duplicate_count": total("duplicates", "event_count"),
        "missed_count": missed.filter(is_kind("missed")).sum().cast(pl.Int64),
        "dropped_row_count": total(EventKind.ROWS_DROPPED.value, "event_count"),
        "sent_bytes": total("sent", "size_bytes"),
        "delivered_bytes": total("delivered", "size_bytes"),
    }
