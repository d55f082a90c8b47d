"""One row a channel and hour, and one a channel and day: how many peers were active, and what they said. In UTC.

A peer is active in an hour in which it saw something (and recorded it), or something that it sent came to somebody.
A day's peers are counted for themselves: they are not the sum of its hours.
"""

from typing import TYPE_CHECKING

from weft.pipeline.table import COUNT, TEXT, TIME, Column, Inputs, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPANS = ("hour", "day")


def build(inputs: Inputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    hours = active(inputs.events)
    said = inputs["messages"].select("channel", F.date_trunc("hour", "time").alias("begins"), "author", "size")
    parts = []
    for span in SPANS:
        begins = F.date_trunc(span, "begins").alias("begins")
        peers = hours.groupBy("channel", begins).agg(F.countDistinct("peer").alias("peers"))
        messages = said.groupBy("channel", begins).agg(
            F.countDistinct("author").alias("authors"), F.count("*").alias("messages"), F.sum("size").alias("bytes")
        )
        together = peers.join(messages, ["channel", "begins"], "full_outer").withColumn("span", F.lit(span))
        parts.append(together.na.fill(0, ["peers", "authors", "messages", "bytes"]))
    return TABLE.shaped(parts[0].unionByName(parts[1])).orderBy("channel", "span", "begins")


def active(events: "DataFrame") -> "DataFrame":
    """Channel, hour and peer, each once."""
    from pyspark.sql import functions as F  # noqa: N812

    hour = F.date_trunc("hour", "time").alias("begins")
    saw = events.where(F.col("observer").isNotNull()).select("channel", hour, F.col("observer").alias("peer"))
    # What a receiver delivers may be from the hour before; what it receives is under way for moments only.
    heard = events.where(F.col("kind") == "received").select("channel", hour, F.col("author").alias("peer"))
    return saw.distinct().unionByName(heard.distinct()).distinct()


TABLE = Table(
    "activity",
    "How many peers were active in each hour and on each day, and how much did they say?",
    (
        Column("channel", TEXT, "First 16 digits of the channel's id."),
        Column("span", TEXT, "hour or day."),
        Column("begins", TIME, "When the hour or day begins, in UTC."),
        Column("peers", COUNT, "Peers that saw or sent something in it."),
        Column("authors", COUNT, "Peers that broadcast in it."),
        Column("messages", COUNT, "Messages broadcast in it."),
        Column("bytes", COUNT, "Their payloads together."),
    ),
    build,
    needs=("messages",),
)
