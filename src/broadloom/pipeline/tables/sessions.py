"""Sessions: intervals in which a subscriber was continuously connected, derived from its identifications.

A subscriber's program identifies itself at a fixed interval. Several recording peers may see the same identification;
it counts once. If the subscriber itself recorded, its `joined` and `left` events give the exact bounds. The rule is in
`broadloom.pipeline.arrow.sessions`.

Sessions are derived from all tapes in every run, so late events find their place: an event that closes the gap between
two sessions merges them. A session may span midnight or the end of a month; only invoices split it.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from broadloom.pipeline.arrow import sessions as arrow
from broadloom.pipeline.arrow.sessions import SessionRule
from broadloom.pipeline.partwise import map_by_key
from broadloom.pipeline.table import CHANNEL, COUNT, EXACT_MS, TEXT, TIME, Table, TableColumn, TableInputs, TableSetting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS = ("identification", "joined", "leaving", "left")

SETTINGS = (
    TableSetting("identification_interval_s", 3600.0, "Interval at which subscribers identify themselves."),
    TableSetting("identifications_missed_max", 0, "Missed identifications before a session is over."),
    TableSetting("identification_grace_s", 300.0, "How late an identification may be before it counts as missed."),
    TableSetting("identification_window_s", 60.0, "Sightings within this time count as one identification."),
    TableSetting(
        "session_tail_s",
        3600.0,
        "How long a subscriber counts as connected after its last identification, unless it left. With 3600 and hourly "
        "identifications each stands for an hour; with 0 only proven time counts.",
    ),
)


def rule(settings: Mapping[str, Any]) -> SessionRule:
    return SessionRule(
        interval_s=settings["identification_interval_s"],
        missed_max=settings["identifications_missed_max"],
        grace_s=settings["identification_grace_s"],
        tail_s=settings["session_tail_s"],
        window_s=settings["identification_window_s"],
    )


def signs(events: "DataFrame", rule: SessionRule) -> "DataFrame":
    """Signs of life by peer, combined per time slice before the shuffle: with a thousand recording peers, that is a
    thousandth of the rows. A slice is shorter than any limit of the rule, so its first and last time are enough."""
    from pyspark.sql import functions as F  # noqa: N812

    kind = F.col("kind")
    is_identification = kind == "identification"
    # A subscriber without a name is known by its peer ID.
    subscriber = F.coalesce("name", "author", F.lit(""))
    return (
        events.where(kind.isin(*KINDS))
        .select(
            "channel",
            F.when(is_identification, F.coalesce("author", F.lit(""))).otherwise(F.col("peer")).alias("peer"),
            F.when(is_identification, subscriber).alias("subscriber"),
            # From `leaving` on a peer is due no messages, so it is not charged.
            F.when(kind == "leaving", "left").otherwise(kind).alias("sign"),
            "event_time",
            F.floor(F.unix_micros("event_time") / F.lit(rule.window_us)).alias("time_slice"),
        )
        .groupBy("channel", "peer", "subscriber", "sign", "time_slice")
        .agg(F.min("event_time").alias("first_time"), F.max("event_time").alias("last_time"))
        .select(*arrow.SIGNS.names)
    )


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    chosen = rule(inputs.settings)
    rows = inputs.rows  # an upper bound of the number of signs
    found = map_by_key(
        signs(inputs.events, chosen), ("channel", "peer"), partial(arrow.spans, rule=chosen), arrow.SPANS, rows
    )
    tape_end = inputs["channels"].select("channel", F.col("end_time").alias("tape_end_time"))
    spans = found.join(F.broadcast(tape_end), "channel")
    merged = map_by_key(spans, ("channel", "subscriber"), partial(arrow.sessions, rule=chosen), arrow.SESSIONS, rows)
    return TABLE.conform(merged)


TABLE = Table(
    "sessions",
    "Who was connected from when to when?",
    (
        CHANNEL,
        TableColumn("subscriber", TEXT, "Name of the subscriber; its peer ID if it has no name."),
        TableColumn("start_time", TIME, "First sign of life: an identification, or its own `joined` event."),
        TableColumn("end_time", TIME, "Its own `left` event, else the last sign plus the tail, within the tapes."),
        TableColumn("connected_ms", EXACT_MS, "Duration of the session."),
        TableColumn("identification_count", COUNT, "Identifications, each counted once."),
        TableColumn("peer_count", COUNT, "Peers of the subscriber: reconnects without a gap, or several devices."),
        TableColumn("end_status", TEXT, "`left`, `timed_out`, or `open` (the tapes end before the timeout)."),
    ),
    build,
    depends_on=("channels",),
    settings=SETTINGS,
)
