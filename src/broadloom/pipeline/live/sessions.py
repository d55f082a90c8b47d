"""Sessions as events arrive. The definition of a session is in `broadloom.pipeline.tables.sessions`.

Signs older than the watermark are merged into spans, one per peer, and only these are kept; no older sign can be on
time any more, so nothing is lost. A session that is over by then is final.
"""

import polars as pl

from broadloom.pipeline.analysis.frames import in_us
from broadloom.pipeline.live.watermark import Watermark
from broadloom.pipeline.tables.sessions import KINDS, SIGN_COLUMNS, SPAN_COLUMNS, SessionRule, sessions, spans

BASE = pl.Schema(
    {
        "channel": pl.String,
        "subscriber": pl.String,
        "peer": pl.String,
        "start_time": pl.Int64,
        "last_time": pl.Int64,
        "identification_count": pl.Int64,
    }
)
"""Spans up to the watermark."""

PENDING = pl.Schema(
    dict.fromkeys(("channel", "peer", "subscriber", "sign"), pl.String())
    | dict.fromkeys(("first_time", "last_time"), pl.Int64())
)
"""Signs above the watermark, and all joins and leaves that may still matter."""


def signs(events: pl.DataFrame) -> pl.DataFrame:
    """As the scan `signs` of the batch tables. A name is that in the row: the proven one, if the recorder knew it."""
    return (
        events.filter(pl.col("kind").is_in(KINDS))
        .select(
            "channel",
            **{name: each for name, each in SIGN_COLUMNS.items() if name in PENDING},
            first_time=pl.col("event_time"),
            last_time=pl.col("event_time"),
        )
        .unique()
        .select(PENDING.names())
    )


def step(
    base: pl.DataFrame, pending: pl.DataFrame, events: pl.DataFrame, watermark: Watermark, rule: SessionRule
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The new state (spans and signs), and the rows of all sessions."""
    pending = pl.concat([pending, signs(events)])
    settled = _spans(base, pending.filter(pl.col("first_time") <= watermark.after_us), rule)
    final = _sessions(settled, watermark.after_us, rule).filter(pl.col("end_status") != "open")
    bounds = final.select("subscriber", final_start="start_time", final_end="end_time")
    closed = settled.join(bounds, on="subscriber").filter(pl.col("start_time").is_between("final_start", "final_end"))
    span = ["subscriber", "peer", "start_time"]
    settled = settled.join(closed.select(span), on=span, how="anti")
    is_recent = pl.col("last_time") >= watermark.after_us - rule.timeout_us
    is_kept = pl.col("peer").is_in(settled["peer"].to_list()) | is_recent
    is_new = pl.col("first_time") > watermark.after_us
    pending = pending.filter(pl.when(pl.col("sign") == "identification").then(is_new).otherwise(is_kept)).unique()
    current = _sessions(_spans(_base(settled), pending, rule), watermark.newest_us, rule)
    rows = pl.concat([final.with_columns(is_final=pl.lit(True)), current.with_columns(is_final=pl.lit(False))])
    return _base(settled), pending, rows


def _base(found: pl.DataFrame) -> pl.DataFrame:
    return found.select(BASE.names())


def _spans(base: pl.DataFrame, pending: pl.DataFrame, rule: SessionRule) -> pl.DataFrame:
    """Merge earlier spans and further signs. An earlier span goes in as one sign; its count is restored afterwards."""
    as_signs = base.select(
        "channel", "peer", "subscriber", "last_time", sign=pl.lit("identification"), first_time="start_time"
    ).select(PENDING.names())
    found = spans(pl.concat([as_signs, pending]), rule)
    keys = ["channel", "subscriber", "peer"]
    counts = (
        found.select(*keys, "start_time", "last_time")
        .join(base.select(*keys, base_start="start_time", base_count="identification_count"), on=keys)
        .filter(pl.col("base_start").is_between("start_time", "last_time"))
        .group_by(*keys, "start_time")
        .agg(more=(pl.col("base_count") - 1).sum())
    )
    return (
        found.join(counts, on=[*keys, "start_time"], how="left")
        .with_columns(identification_count=pl.col("identification_count") + pl.col("more").fill_null(0))
        .select(SPAN_COLUMNS)
    )


def _sessions(found: pl.DataFrame, until_us: int, rule: SessionRule) -> pl.DataFrame:
    rows = sessions(found.with_columns(ticket_serial=pl.lit(None, pl.String)), until_us, rule)
    return in_us(rows.drop("connected_ms", "ticket_serial", "is_proven", "topic"))
