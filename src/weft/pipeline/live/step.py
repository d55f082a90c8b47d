"""One micro-batch of one channel: the state that the last one left, and new events, to a new state and rows of tables.

A pure function over Arrow, so that it runs in a Spark task and in a test alike. The rule: each event is counted in
`rates`, or in `aside`; `Result.rows` says how many there were, and whoever keeps the tables can check it.
"""

from dataclasses import dataclass

import polars as pl

from weft.pipeline.arrow.frames import to_arrow, to_polars
from weft.pipeline.arrow.sessions import SessionRule
from weft.pipeline.live import attendance, fabric, latency, rates
from weft.pipeline.live.contract import ASIDE, TABLES
from weft.pipeline.live.packing import pack, unpack
from weft.pipeline.live.tide import Rules, Tide, split
from weft.record.arrow import pa

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

_TIDE = pl.Schema({"watermark": pl.Int64, "newest": pl.Int64})

_STATE: dict[str, pl.Schema] = {
    "tide": _TIDE,
    "rates": rates.SUMS,
    "heard": rates.PEERS,
    "sent": latency.SENT,
    "waiting": latency.WAITING,
    "buckets": latency.BUCKETS,
    "spans": attendance.BASE,
    "signs": attendance.PENDING,
    "changes": fabric.CHANGES,
    "ends": fabric.ENDS,
    "peers": fabric.PEERS,
}


@dataclass(frozen=True, slots=True)
class Result:
    channel: str
    rows: int
    """Events of this batch."""
    aside_rows: int
    watermark_us: int | None
    state: bytes
    tables: dict[str, pa.Table]
    """Rows of the live tables. Those that are not final replace all of the channel that were not."""


def step(
    channel: str, state: bytes | None, events: pa.Table, *, batch: int, now_us: int, rules: Rules, sessions: SessionRule
) -> Result:
    kept = {name: frame.clear() for name, frame in _empty().items()} | (unpack(state) if state else {})
    found = to_polars(events.select(list(COLUMNS)))
    before_us, newest_us = kept["tide"].row(0) if kept["tide"].height else (None, None)
    good, aside, tide = split(found, before_us, newest_us, now_us, rules)
    told = {"aside": _aside(aside, batch)}
    if tide is not None:
        told |= _steps(kept, good, tide, rules, sessions)
        kept["tide"] = pl.DataFrame({"watermark": [tide.after_us], "newest": [tide.newest_us]}, schema=_TIDE)
    tables = {
        name: to_arrow(frame.with_columns(channel=pl.lit(channel)), TABLES[name].schema) for name, frame in told.items()
    }
    after_us = tide.after_us if tide is not None else None
    return Result(channel, found.height, aside.height, after_us, pack(kept), tables)


def _steps(
    kept: dict[str, pl.DataFrame], good: pl.DataFrame, tide: Tide, rules: Rules, sessions: SessionRule
) -> dict[str, pl.DataFrame]:
    """All tables, and what is to be kept for the next batch."""
    told = {}
    kept["rates"], kept["heard"], told["rates"] = rates.step(kept["rates"], kept["heard"], good, tide)
    kept["sent"], kept["waiting"], kept["buckets"], told["latency"] = latency.step(
        kept["sent"], kept["waiting"], kept["buckets"], good, tide, rules.lateness_us
    )
    kept["spans"], kept["signs"], told["sessions"] = attendance.step(kept["spans"], kept["signs"], good, tide, sessions)
    kept["changes"], kept["ends"], kept["peers"], told["fabric"] = fabric.step(
        kept["changes"], kept["ends"], kept["peers"], good, tide
    )
    return told


def _empty() -> dict[str, pl.DataFrame]:
    return {name: pl.DataFrame(schema=schema) for name, schema in _STATE.items()}


def _aside(aside: pl.DataFrame, batch: int) -> pl.DataFrame:
    """Rows that are in no table, counted."""
    return (
        aside.group_by("aside", "kind")
        .agg(
            rows=pl.len().cast(pl.Int64),
            first=pl.col("time").min(),
            last=pl.col("time").max(),
            observer=pl.col("observer").drop_nulls().mode().sort().first(),
        )
        .rename({"aside": "why"})
        .with_columns(batch=pl.lit(batch, pl.Int64), final=pl.lit(True))
        .sort("why", "kind")
        .select([name for name in ASIDE.schema.names if name != "channel"])
    )
