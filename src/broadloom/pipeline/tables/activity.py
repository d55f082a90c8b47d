"""Active peers and traffic per channel, by hour and by day in UTC.

A peer is active in an hour if it recorded an event in it, or if one of its messages was received in it. Peers of a day
are counted distinctly; they are not the sum of the hours.
"""

from typing import TYPE_CHECKING

from broadloom.pipeline.table import CHANNEL, COUNT, TEXT, TIME, Table, TableColumn, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PERIODS = ("hour", "day")


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    active = active_peers(inputs.events)
    hour = F.date_trunc("hour", "sent_time").alias("start_time")
    messages = inputs["messages"].select("channel", hour, "author", "size_bytes")
    parts = []
    for period in PERIODS:
        start = F.date_trunc(period, "start_time").alias("start_time")
        peers = active.groupBy("channel", start).agg(F.countDistinct("peer").alias("peer_count"))
        traffic = messages.groupBy("channel", start).agg(
            F.countDistinct("author").alias("author_count"),
            F.count("*").alias("message_count"),
            F.sum("size_bytes").alias("payload_bytes"),
        )
        joined = peers.join(traffic, ["channel", "start_time"], "full_outer").withColumn("period", F.lit(period))
        parts.append(joined.na.fill(0, ["peer_count", "author_count", "message_count", "payload_bytes"]))
    return TABLE.conform(parts[0].unionByName(parts[1])).orderBy("channel", "period", "start_time")


def active_peers(events: "DataFrame") -> "DataFrame":
    """Distinct channel, hour and peer."""
    from pyspark.sql import functions as F  # noqa: N812

    hour = F.date_trunc("hour", "event_time").alias("start_time")
    recorded = events.where(F.col("peer").isNotNull()).select("channel", hour, "peer")
    # Not `delivered`: a message may be delivered an hour after it was sent, but it is received within moments.
    authors = events.where(F.col("kind") == "received").select("channel", hour, F.col("author").alias("peer"))
    return recorded.distinct().unionByName(authors.distinct()).distinct()


TABLE = Table(
    "activity",
    "How many peers were active per hour and per day?",
    (
        CHANNEL,
        TableColumn("period", TEXT, "`hour` or `day`."),
        TableColumn("start_time", TIME, "Start of the hour or day, in UTC."),
        TableColumn("peer_count", COUNT, "Peers that recorded an event or sent a message."),
        TableColumn("author_count", COUNT, "Peers that broadcast."),
        TableColumn("message_count", COUNT, "Messages broadcast."),
        TableColumn("payload_bytes", COUNT, "Total size of their payloads."),
    ),
    build,
    depends_on=("messages",),
)
