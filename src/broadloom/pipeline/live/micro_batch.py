"""One micro-batch of one channel: the state that the last one left, and new events, to a new state and rows of tables.

A pure function over Arrow, so that it runs in a Spark task and in a test alike. The rule: each event is counted in
`rates`, or in `aside`; `Result.rows` says how many there were, and whoever keeps the tables can check it.
"""

from dataclasses import dataclass

import polars as pl

from broadloom.pipeline.arrow.frames import to_arrow, to_polars
from broadloom.pipeline.arrow.sessions import SessionRule
from broadloom.pipeline.live import fabric_snapshots, latency, traffic
from broadloom.pipeline.live import sessions as live_sessions
from broadloom.pipeline.live.state_codec import pack, unpack
from broadloom.pipeline.live.tables import EXCLUDED_EVENTS, TABLES
from broadloom.pipeline.live.watermark import Watermark, WatermarkRules, split_by_watermark
from broadloom.record.arrow_import import pa

COLUMNS = (
    "channel",
    "ordinal",
    "run",
    "kind",
    "time",
    "observer",
    "author",
    "sequence",
    "last",
    "hops",
    "neighbour",
    "count",
    "size",
    "name",
)
"""Of an event: what the live tables look at."""

_WATERMARK = pl.Schema({"watermark": pl.Int64, "newest": pl.Int64})

_STATE: dict[str, pl.Schema] = {
    "tide": _WATERMARK,
    "rates": traffic.SUMS,
    "heard": traffic.PEERS,
    "sent": latency.SENT,
    "waiting": latency.UNMATCHED,
    "buckets": latency.BUCKETS,
    "spans": live_sessions.BASE,
    "signs": live_sessions.PENDING,
    "changes": fabric_snapshots.CHANGES,
    "ends": fabric_snapshots.ENDS,
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
    tables: dict[str, pa.Table]
    """Rows of the live tables. Those that are not final replace all of the channel that were not."""


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
    kept = {name: frame.clear() for name, frame in _empty().items()} | (unpack(state) if state else {})
    found = to_polars(events.select(list(COLUMNS)))
    before_us, newest_us = kept["tide"].row(0) if kept["tide"].height else (None, None)
    good, aside, tide = split_by_watermark(found, before_us, newest_us, now_us, rules)
    told = {"aside": _excluded_events(aside, batch)}
    if tide is not None:
        told |= _update_tables(kept, good, tide, rules, sessions)
        kept["tide"] = pl.DataFrame({"watermark": [tide.after_us], "newest": [tide.newest_us]}, schema=_WATERMARK)
    tables = {
        name: to_arrow(frame.with_columns(channel=pl.lit(channel)), TABLES[name].schema) for name, frame in told.items()
    }
    after_us = tide.after_us if tide is not None else None
    return MicroBatchResult(channel, found.height, aside.height, after_us, pack(kept), tables)


def _update_tables(
    state: dict[str, pl.DataFrame],
    good: pl.DataFrame,
    watermark: Watermark,
    rules: WatermarkRules,
    sessions: SessionRule,
) -> dict[str, pl.DataFrame]:
    """All tables, and what is to be kept for the next batch."""
    told = {}
    state["rates"], state["heard"], told["rates"] = traffic.step(state["rates"], state["heard"], good, watermark)
    state["sent"], state["waiting"], state["buckets"], told["latency"] = latency.step(
        state["sent"], state["waiting"], state["buckets"], good, watermark, rules.lateness_us
    )
    state["spans"], state["signs"], told["sessions"] = live_sessions.step(
        state["spans"], state["signs"], good, watermark, sessions
    )
    state["changes"], state["ends"], state["peers"], told["fabric"] = fabric_snapshots.step(
        state["changes"], state["ends"], state["peers"], good, watermark
    )
    return told


def _empty() -> dict[str, pl.DataFrame]:
    return {name: pl.DataFrame(schema=schema) for name, schema in _STATE.items()}


def _excluded_events(excluded: pl.DataFrame, batch: int) -> pl.DataFrame:
    """Rows that are in no table, counted."""
    return (
        excluded.group_by("aside", "kind")
        .agg(
            rows=pl.len().cast(pl.Int64),
            first=pl.col("time").min(),
            last=pl.col("time").max(),
            observer=pl.col("observer").drop_nulls().mode().sort().first(),
        )
        .rename({"aside": "why"})
        .with_columns(batch=pl.lit(batch, pl.Int64), final=pl.lit(True))
        .sort("why", "kind")
        .select([name for name in EXCLUDED_EVENTS.schema.names if name != "channel"])
    )
