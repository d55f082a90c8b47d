"""What rules on outgoing messages did, one row per rule."""

import polars as pl

from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column
from broadloom.record.schema import EventKind

STATUSES = {
    "passed": "went on to the next rule, or were sent",
    "refused": "were refused by it",
    "held": "are held by it",
    "failed": "were not sent because it could not be carried out",
    "cancelled": "were not sent because the program no longer waited",
}

COLUMNS = (
    CHANNEL,
    column("rule_name", "The rule, as errors and counters call it."),
    column("rule_number", "Its position, from 1."),
    column("actions", "What it did, in order; if that differs, what it did most often."),
    column("hit_count", "Messages on which it acted."),
    *(column(f"{name}_count", f"Those that {about}.") for name, about in STATUSES.items()),
    column("peer_count", "Peers with this rule."),
    column("duration_ms", "Time that it took in all."),
    column("duration_max_ms", "The longest time for one message."),
    column("first_hit_time", "Its first hit."),
    column("last_hit_time", "Its last hit."),
)

EVENT_COLUMNS = ("kind", "event_time", "peer", "name", "rule_number", "actions", "status", "duration_ms")

_KEYS = ["channel", "rule_name", "rule_number"]


def rule_hits(events: pl.DataFrame) -> pl.DataFrame:
    """The hits of a part."""
    hits = events.filter(pl.col("kind").eq(EventKind.RULE_HIT.value))
    return hits.select("event_time", "peer", "rule_number", "actions", "status", "duration_ms", rule_name="name")


def rule_stats(hits: pl.DataFrame) -> pl.DataFrame:
    # No rule takes a negative or infinite time.
    duration_ms = pl.col("duration_ms").filter(pl.col("duration_ms").is_finite() & (pl.col("duration_ms") >= 0))
    found = hits.group_by(_KEYS).agg(
        actions=pl.col("actions").drop_nulls().mode().sort().first(),
        hit_count=pl.len().cast(pl.Int64),
        **{f"{name}_count": (pl.col("status") == name).sum().cast(pl.Int64) for name in STATUSES},
        peer_count=pl.col("peer").n_unique().cast(pl.Int64),
        duration_ms=duration_ms.sum().round(3),
        duration_max_ms=duration_ms.max().round(3),
        first_hit_time=pl.col("event_time").min(),
        last_hit_time=pl.col("event_time").max(),
    )
    return conform(found.sort("channel", "rule_number", "rule_name"), COLUMNS)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return rule_stats(inputs.scan("rule_hits"))


TABLE = Table(
    "rule_stats",
    "What did the rules on outgoing messages do, and how long did they take?",
    COLUMNS,
    Stage.CHANNEL,
    build,
)
