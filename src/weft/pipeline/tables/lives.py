"""Who was a member from when to when, and how did it end? The intervals that links, fabric and repairs stand on."""

from typing import TYPE_CHECKING

from weft.pipeline.arrow import lives
from weft.pipeline.partwise import both_by_channel
from weft.pipeline.table import FLAG, ID, TEXT, TIME, Column, Inputs, Table
from weft.pipeline.tables.clocks import correction
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: Inputs) -> "DataFrame":
    clocks = correction(inputs)

    def judged(changes: pa.Table, signs: pa.Table) -> pa.Table:
        return lives.lives(changes, signs, clocks)

    return TABLE.shaped(both_by_channel(changes(inputs.events), _signs(inputs.events), judged, lives.LIVES))


def changes(events: "DataFrame") -> "DataFrame":
    """Rows about membership and links."""
    from pyspark.sql import functions as F  # noqa: N812

    return events.where(F.col("kind").isin(*lives.KINDS)).select(*lives.COLUMNS)


def _signs(events: "DataFrame") -> "DataFrame":
    """First and last sign of life of each peer: rows of its own, and messages that others got from it."""
    from pyspark.sql import functions as F  # noqa: N812

    span = F.min("time").alias("first"), F.max("time").alias("last")
    own = events.where(F.col("observer").isNotNull()).groupBy("channel", "run", F.col("observer").alias("peer"))
    heard = events.where(F.col("kind") == "received").groupBy("channel", "run", F.col("neighbour").alias("peer"))
    columns = lives.SIGNS.names
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
        Column("channel", TEXT, "First digits of the channel's id."),
        Column("peer", ID, "Id of the peer."),
        Column("is_recorded", FLAG, "Whether it recorded; if not, all is known from its neighbours."),
        Column("since", TIME, "When it was first part of the fabric: its first link, or `joined`."),
        Column("joined", TIME, "When it became a full member."),
        Column("last", TIME, "Its last sign of life: a row of its own, or a message that came from it."),
        Column("gone", TIME, "When it began to leave, or died; null if it was there to the end of the tape."),
        Column("how", TEXT, "left (in good order), died (lost by its neighbours without a word), there (to the end)."),
    ),
    build=build,
    needs=("clocks",),
)
