"""Rates: how many events of each kind, window by window. Sums that later batches add to, until the window is final."""

import polars as pl

from broadloom.pipeline.live.watermark import Watermark
from broadloom.record.schema import EventKind

_SUMS = (
    "rows",
    "sent",
    "received",
    "delivered",
    "duplicates",
    "missed",
    "lost",
    "sent_bytes",
    "delivered_bytes",
)

SUMS = pl.Schema({"start": pl.Int64, **dict.fromkeys(_SUMS, pl.Int64)})
PEERS = pl.Schema({"start": pl.Int64, "role": pl.String, "peer": pl.String})
"""Who was heard of in a window: a number of different ones cannot be added up."""


def step(
    sums: pl.DataFrame, peers: pl.DataFrame, events: pl.DataFrame, watermark: Watermark
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Sums and peers of windows that are still open, and the rows of all windows with `final`."""
    fresh = events.with_columns(start=watermark.window_of("time"))
    sums = (
        pl.concat([sums, fresh.group_by("start").agg(**_sums()).select(SUMS.names())])
        .group_by("start")
        .sum()
        .select(SUMS.names())
    )
    authors = fresh.filter(pl.col("kind").is_in(["sent", "delivered"])).select("start", peer="author")
    heard = [
        authors.with_columns(role=pl.lit("author")).select(PEERS.names()),
        fresh.select("start", peer="observer").with_columns(role=pl.lit("observer")).select(PEERS.names()),
    ]
    peers = pl.concat([peers, *(each.unique().drop_nulls() for each in heard)]).unique()
    counted = peers.group_by("start").agg(
        observers=(pl.col("role") == "observer").sum().cast(pl.Int64),
        authors=(pl.col("role") == "author").sum().cast(pl.Int64),
    )
    told = (
        sums.join(counted, on="start", how="left")
        .with_columns(pl.col("observers", "authors").fill_null(0), final=watermark.is_final("start"))
        .sort("start")
    )
    return sums.filter(~watermark.is_final("start")), peers.filter(~watermark.is_final("start")), told


def _sums() -> dict[str, pl.Expr]:
    def of(kind: str) -> pl.Expr:
        return pl.col("kind") == kind

    def total(kind: str, column: str) -> pl.Expr:
        return pl.col(column).filter(of(kind)).sum().cast(pl.Int64)

    missed = (pl.col("last") - pl.col("sequence") + 1).filter(of("missed")).sum().cast(pl.Int64)
    return {
        "rows": pl.len().cast(pl.Int64),
        **{kind: of(kind).sum().cast(pl.Int64) for kind in ("sent", "received", "delivered")},
        "duplicates": total("duplicates", "count"),
        "missed": missed,
        "lost": total(EventKind.ROWS_DROPPED.value, "count"),
        "sent_bytes": total("sent", "size"),
        "delivered_bytes": total("delivered", "size"),
    }
