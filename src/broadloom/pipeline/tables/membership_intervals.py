"""Who was a member from when to when, and how did it end? The intervals that links, fabric and repairs stand on."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import membership_intervals
from broadloom.pipeline.partwise import cogroup_by_channel
from broadloom.pipeline.table import FLAG, ID, TEXT, TIME, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.clock_offsets import correction
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    clocks = correction(inputs)

    def judged(changes: pa.Table, signs: pa.Table) -> pa.Table:
        return membership_intervals.membership_intervals(changes, signs, clocks)

    return TABLE.conform(
        cogroup_by_channel(
            changes(inputs.events), _signs(inputs.events), judged, membership_intervals.MEMBERSHIP_INTERVALS
        )
    )


def changes(events: "DataFrame") -> "DataFrame":
    """Rows about membership and links."""
    from pyspark.sql import functions as F  # noqa: N812

    return events.where(F.col("kind").isin(*membership_intervals.KINDS)).select(*membership_intervals.COLUMNS)


def _signs(events: "DataFrame") -> "DataFrame":
    """First and last sign of life of each peer: rows of its own, and messages that others got from it."""
    from pyspark.sql import functions as F  # noqa: N812

    span = F.min("time").alias("first"), F.max("time").alias("last")
    own = events.where(F.col("observer").isNotNull()).groupBy("channel", "run", F.col("observer").alias("peer"))
    heard = events.where(F.col("kind") == "received").groupBy("channel", "run", F.col("neighbour").alias("peer"))
    columns = membership_intervals.SIGNS.names
    return (
        own.agg(*span)
        .withColumn("is_own", F.lit(True))
        .select(*columns)
        .unionByName(heard.agg(*span).withColumn("is_own", F.lit(False)).select(*columns))
    )


TABLE = Table(
    name="lives",
    question="Which peers were there from when to when, and which of them died?",
    columns=(
        TableColumn("channel", TEXT, "First digits of the channel's id."),
        TableColumn("peer", ID, "Id of the peer."),
        TableColumn("is_recorded", FLAG, "Whether it recorded; if not, all is known from its neighbours."),
        TableColumn("since", TIME, "When it was first part of the fabric: its first link, or `joined`."),
        TableColumn("joined", TIME, "When it became a full member."),
        TableColumn("last", TIME, "Its last sign of life: a row of its own, or a message that came from it."),
        TableColumn("gone", TIME, "When it began to leave, or died; null if it was there to the end of the tape."),
        TableColumn(
            "how", TEXT, "left (in good order), died (lost by its neighbours without a word), there (to the end)."
        ),
    ),
    build=build,
    depends_on=("clocks",),
)
