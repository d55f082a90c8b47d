"""How much each author of a channel sent, the busiest first."""

from typing import TYPE_CHECKING

from broadloom.pipeline.table import CHANNEL, COUNT, ID, TEXT, TIME, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.membership_intervals import peer_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    stats = (
        inputs["messages"]
        .groupBy("channel", "author")
        .agg(
            F.count("*").alias("message_count"),
            F.sum("size_bytes").alias("payload_bytes"),
            F.count(F.coalesce("parent_author", "parent_member")).alias("reply_count"),
            F.countDistinct("group_id").alias("group_count"),
            F.countDistinct("topic").alias("topic_count"),
            F.min("sent_time").alias("first_message_time"),
            F.max("sent_time").alias("last_message_time"),
        )
    )
    names = peer_names(inputs.events).withColumnRenamed("peer", "author")
    order = Window.partitionBy("channel").orderBy(F.desc("message_count"), F.desc("payload_bytes"), "author")
    ranked = stats.join(names, ["channel", "author"], "left").withColumn("volume_rank", F.row_number().over(order))
    return TABLE.conform(ranked.na.fill(0, ["payload_bytes"])).orderBy("channel", "volume_rank")


TABLE = Table(
    "author_stats",
    "How much did each author send?",
    (
        CHANNEL,
        TableColumn("volume_rank", COUNT, "1 for the author with most messages in the channel; ties by bytes."),
        TableColumn("author", ID, "Peer ID of the author."),
        TableColumn("name", TEXT, "Display name, if known."),
        TableColumn("message_count", COUNT, "Messages broadcast."),
        TableColumn("payload_bytes", COUNT, "Total size of their payloads."),
        TableColumn("reply_count", COUNT, "Messages that reply to another one."),
        TableColumn("group_count", COUNT, "Groups posted in."),
        TableColumn("topic_count", COUNT, "Topics posted on."),
        TableColumn("first_message_time", TIME, "Time of the first message."),
        TableColumn("last_message_time", TIME, "Time of the last message."),
    ),
    build,
    depends_on=("messages",),
)
