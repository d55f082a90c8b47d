"""One row a channel and hour, and one a channel and day: how many peers were active, and what they said. In UTC.

A peer is active in an hour in which it saw something (and recorded it), or something that it sent came to somebody.
A day's peers are counted for themselves: they are not the sum of its hours.
"""

from typing import TYPE_CHECKING

from broadloom.pipeline.table import COUNT, TEXT, TIME, Table, TableColumn, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PERIODS = ("hour", "day")


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    hours = active(inputs.events)
    said = inputs["messages"].select("channel", F.date_trunc("hour", "time").alias("begins"), "author", "size")
    parts = []
    for span in PERIODS:
        begins = F.date_trunc(span, "begins").alias("begins")
        peers = hours.groupBy("channel", begins).agg(F.countDistinct("peer").alias("peers"))
        messages = said.groupBy("channel", begins).agg(
            F.countDistinct("author").alias("authors"), F.count("*").alias("messages"), F.sum("size").alias("bytes")
        )
        together = peers.join(messages, ["channel", "begins"], "full_outer").withColumn("span", F.lit(span))
        parts.append(together.na.fill(0, ["peers", "authors", "messages", "bytes"]))
    return TABLE.conform(parts[0].unionByName(parts[1])).orderBy("channel", "span", "begins")


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
        TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
        TableColumn("span", TEXT, "hour or day."),
        TableColumn("begins", TIME, "When the hour or day begins, in UTC."),
        TableColumn("peers", COUNT, "Peers that saw or sent something in it."),
        TableColumn("authors", COUNT, "Peers that broadcast in it."),
        TableColumn("messages", COUNT, "Messages broadcast in it."),
        TableColumn("bytes", COUNT, "Their payloads together."),
    ),
    build,
    depends_on=("messages",),
)
