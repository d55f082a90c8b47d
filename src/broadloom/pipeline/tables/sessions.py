"""One row a session: a time during which a subscriber was connected without a break, told by its identifications.

A subscriber's program says "I am here" at an interval. Whoever records hears it, often several observers the same one;
it counts once. If the subscriber recorded itself, its joined and left rows tell beginning and end exactly. The rule is
in `broadloom.pipeline.arrow.sessions`.

Sessions are found anew from all tapes at each run, so what comes late has its place: a row that closes a break between
two sessions makes them one. A session may last over midnight and the end of a month; only bills cut it.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from broadloom.pipeline.arrow import sessions as arrow
from broadloom.pipeline.arrow.sessions import SessionRule
from broadloom.pipeline.partwise import map_by_key
from broadloom.pipeline.table import COUNT, TEXT, TIME, Table, TableColumn, TableInputs, TableSetting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS = ("identification", "joined", "leaving", "left")
"""Rows that tell whether a subscriber is there."""

SETTINGS = (
    TableSetting("identification_s", 3600.0, "How often a subscriber says that it is here."),
    TableSetting("identifications_missed_max", 0, "How many identifications may be lacking before a session is over."),
    TableSetting("identification_slack_s", 300.0, "How late an identification may be before it counts as missed."),
    TableSetting("identification_spread_s", 60.0, "What several observers see within this time is one identification."),
    TableSetting(
        "session_tail_s",
        3600.0,
        "How long after its last identification a subscriber counts as connected, unless it said that it left; "
        "3600 with hourly identifications means that each stands for an hour, and 0 that only proven time counts.",
    ),
)


def rule(settings: Mapping[str, Any]) -> SessionRule:
    return SessionRule(
        interval_s=settings["identification_s"],
        missed_max=settings["identifications_missed_max"],
        grace_s=settings["identification_slack_s"],
        tail_s=settings["session_tail_s"],
        window_s=settings["identification_spread_s"],
    )


def signs(events: "DataFrame", rule: SessionRule) -> "DataFrame":
    """Signs of life by peer. Those of one short stretch of time are put together here, before they are sent around:
    with a thousand observers that is a thousandth of the rows. The stretch is shorter than any limit of the rule, so
    its first and last moment tell all that matters."""
    from pyspark.sql import functions as F  # noqa: N812

    kind = F.col("kind")
    is_said = kind == "identification"
    stretch = F.floor(F.unix_micros("time") / F.lit(rule.window_us))
    # What nobody named is still somebody: its peer stands for the subscriber.
    return (
        events.where(kind.isin(*KINDS))
        .select(
            "channel",
            F.when(is_said, F.coalesce("author", F.lit(""))).otherwise(F.col("observer")).alias("peer"),
            F.when(is_said, F.coalesce("name", "author", F.lit(""))).alias("subscriber"),
            # From `leaving` on a peer is owed nothing, so it does not pay for more.
            F.when(kind == "leaving", "left").otherwise(kind).alias("sign"),
            "time",
            stretch.alias("stretch"),
        )
        .groupBy("channel", "peer", "subscriber", "sign", "stretch")
        .agg(F.min("time").alias("first"), F.max("time").alias("last"))
        .select(*arrow.SIGNS.names)
    )


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    chosen = rule(inputs.settings)
    rows = inputs.rows  # no more signs than that
    found = map_by_key(
        signs(inputs.events, chosen), ("channel", "peer"), partial(arrow.spans, rule=chosen), arrow.SPANS, rows
    )
    until = inputs["channels"].select("channel", F.col("last").alias("until"))
    spans = found.join(F.broadcast(until), "channel")
    together = map_by_key(spans, ("channel", "subscriber"), partial(arrow.sessions, rule=chosen), arrow.SESSIONS, rows)
    return TABLE.conform(together)


TABLE = Table(
    "sessions",
    "Who was connected from when to when?",
    (
        TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
        TableColumn("subscriber", TEXT, "By name; by peer if it gave no name."),
        TableColumn("start", TIME, "First sign of life: the first identification, or its own joined row."),
        TableColumn("end", TIME, "Its own left row; else the last sign and the tail, as far as the tapes reach."),
        TableColumn("connected_us", COUNT, "Microseconds from start to end."),
        TableColumn("identifications", COUNT, "How often it said that it is here; seen by several observers is once."),
        TableColumn("peers", COUNT, "As how many peers: several connects without a break, or several devices at once."),
        TableColumn("ended", TEXT, "left, silent, or open: the tapes end before the silence was long enough."),
    ),
    build,
    depends_on=("channels",),
    settings=SETTINGS,
)
