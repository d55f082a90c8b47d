"""One row a peer of a channel: who it is to people, and from when to when it was there. Lives, with names.

Whoever was there at a moment has `since` before it and `until` after it, or null: still there when the tape ends.
"""

from typing import TYPE_CHECKING

from broadloom.pipeline.table import ID, TEXT, TIME, Table, TableColumn, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    lives = inputs["lives"].select("channel", "peer", "since", F.col("gone").alias("until"), "how")
    return TABLE.conform(lives.join(names(inputs.events), ["channel", "peer"], "left"))


def names(events: "DataFrame") -> "DataFrame":
    """What each peer is called: as it said itself when it joined, else as it identified itself; its first such word."""
    from pyspark.sql import functions as F  # noqa: N812

    is_joined = F.col("kind") == "joined"
    word = F.struct((~is_joined).alias("rank"), "time", "name")
    return (
        events.where(F.col("kind").isin("joined", "identification") & F.col("name").isNotNull())
        .groupBy("channel", F.when(is_joined, F.col("observer")).otherwise(F.col("author")).alias("peer"))
        .agg(F.min(word).getField("name").alias("name"))
    )


TABLE = Table(
    "rosters",
    "Who was in the channel when?",
    (
        TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
        TableColumn("peer", ID, "Id of the peer."),
        TableColumn("name", TEXT, "Who it is to people, if it said so: in its joined row, or by identification."),
        TableColumn("since", TIME, "When it was first part of the fabric."),
        TableColumn("until", TIME, "When it began to leave or died; null if it was there to the end of the tape."),
        TableColumn("how", TEXT, "left, died or there, as in lives."),
    ),
    build,
    depends_on=("lives",),
)
