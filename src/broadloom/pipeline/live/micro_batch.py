"""One micro-batch of one channel: previous state and new events become new state and rows of the live tables.

A pure function over Arrow, so that it runs in a Spark task and in a test alike. Each event is counted either in
`traffic` or in `excluded_events`, and `MicroBatchResult.rows` is the total, so the counts can be checked.
"""

from dataclasses import dataclass

import polars as pl

from broadloom.pipeline.analysis.frames import conform, frame, in_us
from broadloom.pipeline.live import fabric_snapshots, latency, traffic
from broadloom.pipeline.live import sessions as live_sessions
from broadloom.pipeline.live.state_codec import pack, unpack
from broadloom.pipeline.live.tables import EXCLUDED_EVENTS, TABLES
from broadloom.pipeline.live.watermark import Watermark, WatermarkRules, split_by_watermark
from broadloom.pipeline.row_checks import row_problem
from broadloom.pipeline.tables.sessions import SessionRule
from broadloom.record.arrow_import import pa

COLUMNS = (
    *("channel", "ordinal", "run_id", "kind", "event_time", "peer", "author", "sequence", "last_sequence", "hops"),
    *("neighbor", "event_count", "size_bytes", "name", "event_date"),
)
"""The tape columns that live tables read."""

_WATERMARK = pl.Schema({"watermark": pl.Int64, "newest": pl.Int64})

_STATE: dict[str, pl.Schema] = {
    "watermark": _WATERMARK,
    "traffic": traffic.SUMS,
    "traffic_peers": traffic.PEERS,
    "sent": latency.SENT,
    "unmatched": latency.UNMATCHED,
    "buckets": latency.BUCKETS,
    "spans": live_sessions.BASE,
    "signs": live_sessions.PENDING,
    "changes": fabric_snapshots.CHANGES,
    "link_ends": fabric_snapshots.LINK_ENDS,
    "peers": fabric_snapshots.PEERS,
}


@dataclass(frozen=True, slots=True)
class MicroBatchResult:
    channel: str
    rows: int
    """Events of this batch."""
    excluded_rows: int
    watermark_us: int | None
    state: bytes
    tables: dict[str, pl.DataFrame]
    """Rows of the live tables. Rows that are not final replace all such rows of the channel."""


def process_micro_batch(
    channel: str,
    state: bytes | None,
    events: pa.Table,
    *,
    batch: int,
    now_us: int,
    rules: WatermarkRules,
    sessions: SessionRule,
) -> MicroBatchResult:
    kept = {name: pl.DataFrame(schema=schema) for name, schema in _STATE.items()} | (unpack(state) if state else {})
    every = in_us(frame(events.select(list(COLUMNS))))
    before_us, newest_us = kept["watermark"].row(0) if kept["watermark"].height else (None, None)
    judged = every.with_columns(excluded_reason=row_problem(every.columns))
    valid = judged.filter(pl.col("excluded_reason").is_null()).drop("excluded_reason")
    on_time, excluded, watermark = split_by_watermark(valid, before_us, newest_us, now_us, rules)
    excluded = pl.concat([judged.filter(pl.col("excluded_reason").is_not_null()), excluded])
    found = {EXCLUDED_EVENTS.name: _excluded_events(excluded, batch)}
    if watermark is not None:
        found |= _update_tables(kept, on_time, watermark, rules, sessions)
        kept["watermark"] = pl.DataFrame([(watermark.after_us, watermark.newest_us)], schema=_WATERMARK, orient="row")
    tables = {
        name: conform(rows.with_columns(channel=pl.lit(channel)), TABLES[name].columns) for name, rows in found.items()
    }
    after_us = watermark.after_us if watermark is not None else None
    return MicroBatchResult(channel, every.height, excluded.height, after_us, pack(kept), tables)


def _update_tables(
    state: dict[str, pl.DataFrame],
    events: pl.DataFrame,
    watermark: Watermark,
    rules: WatermarkRules,
    sessions: SessionRule,
) -> dict[str, pl.DataFrame]:
    """The rows of all tables. Updates `state` for the next batch."""
    rows = {}
    state["traffic"], state["traffic_peers"], rows["traffic"] = traffic.step(
        state["traffic"], state["traffic_peers"], events, watermark
    )
    state["sent"], state["unmatched"], state["buckets"], rows["latency"] = latency.step(
        state["sent"], state["unmatched"], state["buckets"], events, watermark, rules.lateness_us
    )
    state["spans"], state["signs"], rows["sessions"] = live_sessions.step(
        state["spans"], state["signs"], events, watermark, sessions
    )
    state["changes"], state["link_ends"], state["peers"], rows["fabric_snapshots"] = fabric_snapshots.step(
        state["changes"], state["link_ends"], state["peers"], events, watermark
    )
    return rows


def _excluded_events(excluded: pl.DataFrame, batch: int) -> pl.DataFrame:
    """Events that are in no table, counted."""
    return (
        excluded.group_by("excluded_reason", "kind")
        .agg(
            event_count=pl.len().cast(pl.Int64),
            first_event_time=pl.col("event_time").min(),
            last_event_time=pl.col("event_time").max(),
            peer=pl.col("peer").drop_nulls().mode().sort().first(),
        )
        .rename({"excluded_reason": "reason"})
        .with_columns(batch_id=pl.lit(batch, pl.Int64), is_final=pl.lit(True))
        .sort("reason", "kind")
        .select([name for name in EXCLUDED_EVENTS.schema.names if name != "channel"])
    )
