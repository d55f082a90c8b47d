"""When each peer was a member, with its name. The tables on links, snapshots and repairs build on it.

The members at a time t are the rows with `start_time <= t` and `end_time` after t or null.
"""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import membership_intervals
from broadloom.pipeline.partwise import cogroup_by_channel
from broadloom.pipeline.table import CHANNEL, FLAG, ID, TEXT, TIME, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.clock_offsets import correction
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    clocks = correction(inputs)

    def intervals(changes: pa.Table, signs: pa.Table) -> pa.Table:
        return membership_intervals.membership_intervals(changes, signs, clocks)

    changes, signs = membership_events(inputs.events), _signs_of_life(inputs.events)
    found = cogroup_by_channel(changes, signs, intervals, membership_intervals.MEMBERSHIP_INTERVALS)
    return TABLE.conform(found.join(peer_names(inputs.events), ["channel", "peer"], "left"))


def membership_events(events: "DataFrame") -> "DataFrame":
    """Events about membership and links."""
    from pyspark.sql import functions as F  # noqa: N812

    return events.where(F.col("kind").isin(*membership_intervals.KINDS)).select(*membership_intervals.COLUMNS)


def peer_names(events: "DataFrame") -> "DataFrame":
    """Display name of each peer: from its `joined` event, else from its first identification."""
    from pyspark.sql import functions as F  # noqa: N812

    is_joined = F.col("kind") == "joined"
    candidate = F.struct((~is_joined).alias("preference"), "event_time", "name")
    return (
        events.where(F.col("kind").isin("joined", "identification") & F.col("name").isNotNull())
        .groupBy("channel", F.when(is_joined, F.col("peer")).otherwise(F.col("author")).alias("peer"))
        .agg(F.min(candidate).getField("name").alias("name"))
    )


def _signs_of_life(events: "DataFrame") -> "DataFrame":
    """First and last sign of life of each peer: its own events, and messages that others received from it."""
    from pyspark.sql import functions as F  # noqa: N812

    span = F.min("event_time").alias("first_time"), F.max("event_time").alias("last_time")
    own = events.where(F.col("peer").isNotNull()).groupBy("channel", "run_id", "peer")
    relayed = events.where(F.col("kind") == "received").groupBy("channel", "run_id", F.col("neighbor").alias("peer"))
    columns = membership_intervals.SIGNS.names
    return (
        own.agg(*span)
        .withColumn("is_own", F.lit(True))
        .select(*columns)
        .unionByName(relayed.agg(*span).withColumn("is_own", F.lit(False)).select(*columns))
    )


TABLE = Table(
    name="membership_intervals",
    question="Which peers were members from when to when?",
    columns=(
        CHANNEL,
        TableColumn("peer", ID, "ID of the peer."),
        TableColumn("name", TEXT, "Display name, from its `joined` event or an identification; null if unknown."),
        TableColumn("is_recorded", FLAG, "Whether it recorded; if not, it is known from its neighbors only."),
        TableColumn("start_time", TIME, "When it entered the fabric: its first link, or `joined_time`."),
        TableColumn("joined_time", TIME, "When it became a full member."),
        TableColumn("last_seen_time", TIME, "Last sign of life: an event of its own, or a message received from it."),
        TableColumn("end_time", TIME, "When it began to leave or crashed; null if present at the end of the tape."),
        TableColumn("end_status", TEXT, "`left` (gracefully), `crashed` or `present` (at the end of the tape)."),
    ),
    build=build,
    depends_on=("clock_offsets",),
)
