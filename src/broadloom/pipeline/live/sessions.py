"""Sessions as they go on. What a session is, is in `broadloom.pipeline.arrow.sessions`; here signs come bit by bit.

Signs older than the watermark are put together into spans, one for each peer, and only these are kept; since no older
sign can be on time any more, nothing is lost by it. A session that is over by then is final.
"""

import polars as pl

from broadloom.pipeline.arrow.frames import to_polars
from broadloom.pipeline.arrow.sessions import SIGNS, SPANS, SessionRule, sessions, spans
from broadloom.pipeline.live.watermark import Watermark
from broadloom.record.arrow_import import pa

_TIMES = ("first", "last", "start", "end")

BASE = pl.Schema(
    {
        "channel": pl.String,
        "subscriber": pl.String,
        "peer": pl.String,
        "start": pl.Int64,
        "last": pl.Int64,
        "identifications": pl.Int64,
    }
)
"""Spans up to the watermark."""

PENDING = pl.Schema({name: pl.Int64 if name in _TIMES else pl.String for name in SIGNS.names})
"""Signs above the watermark; and all of joining and leaving that may still matter."""


def signs(events: pl.DataFrame) -> pl.DataFrame:
    """As `broadloom.pipeline.tables.sessions.signs` reads them on the tape."""
    kind = pl.col("kind")
    is_said = kind == "identification"
    named = pl.coalesce("name", "author", pl.lit(""))
    return (
        events.filter(kind.is_in(["identification", "joined", "leaving", "left"]))
        .select(
            "channel",
            peer=pl.when(is_said).then(pl.col("author").fill_null("")).otherwise("observer"),
            subscriber=pl.when(is_said).then(named),
            sign=pl.when(kind == "leaving").then(pl.lit("left")).otherwise(kind),
            first=pl.col("time"),
            last=pl.col("time"),
        )
        .unique()
        .select(PENDING.names())
    )


def step(
    base: pl.DataFrame, pending: pl.DataFrame, events: pl.DataFrame, watermark: Watermark, rule: SessionRule
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Spans and signs to be kept, and the rows of all sessions with `final`."""
    pending = pl.concat([pending, signs(events)])
    settled = _spans(base, pending.filter(pl.col("first") <= watermark.after_us), rule)
    over = _sessions(settled, watermark.after_us, rule).filter(pl.col("ended") != "open")
    ends = over.select("subscriber", over_from="start", over_at="end")
    gone = settled.join(ends, on="subscriber").filter(pl.col("start").is_between("over_from", "over_at"))
    span = ["subscriber", "peer", "start"]
    settled = settled.join(gone.select(span), on=span, how="anti")
    is_kept = pl.col("peer").is_in(settled["peer"].to_list()) | (pl.col("last") >= watermark.after_us - rule.timeout_us)
    is_said = pl.col("sign") == "identification"
    pending = pending.filter(pl.when(is_said).then(pl.col("first") > watermark.after_us).otherwise(is_kept)).unique()
    going = _sessions(_spans(_base(settled), pending, rule), watermark.newest_us, rule)
    told = pl.concat([over.with_columns(final=pl.lit(True)), going.with_columns(final=pl.lit(False))])
    return _base(settled), pending, told


def _base(found: pl.DataFrame) -> pl.DataFrame:
    return found.select(BASE.names())


def _spans(base: pl.DataFrame, pending: pl.DataFrame, rule: SessionRule) -> pl.DataFrame:
    """Spans of what was put together before and of further signs. A span of before goes in as one sign, and gets the
    number that it stood for again."""
    as_signs = base.select(
        "channel", "peer", "subscriber", sign=pl.lit("identification"), first="start", last="last"
    ).select(PENDING.names())
    found = to_polars(spans(_as_arrow(pl.concat([as_signs, pending])), rule))
    keys = ["channel", "subscriber", "peer"]
    counted = (
        found.select(*keys, "start", "last")
        .join(base.select(*keys, base_start="start", base_count="identifications"), on=keys)
        .filter(pl.col("base_start").is_between("start", "last"))
        .group_by(*keys, "start")
        .agg(more=(pl.col("base_count") - 1).sum())
    )
    return (
        found.join(counted, on=[*keys, "start"], how="left")
        .with_columns(identifications=pl.col("identifications") + pl.col("more").fill_null(0))
        .select(SPANS.names)
    )


def _sessions(found: pl.DataFrame, until_us: int, rule: SessionRule) -> pl.DataFrame:
    table = _as_arrow(found.with_columns(until=pl.lit(until_us, pl.Int64)))
    return to_polars(sessions(table, rule)).select(
        "channel", "subscriber", "start", "end", "identifications", "peers", "ended"
    )


def _as_arrow(frame: pl.DataFrame) -> pa.Table:
    """With times as times."""
    times = [name for name in (*_TIMES, "until") if name in frame.columns]
    return frame.with_columns(pl.col(name).cast(pl.Datetime("us", "UTC")) for name in times).to_arrow()
