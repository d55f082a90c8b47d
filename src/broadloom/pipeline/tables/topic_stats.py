"""Messages and authors per group and topic of a channel.

Messages without a group or topic have a row too (null), so that the rows add up to all messages.
"""

from typing import TYPE_CHECKING

from broadloom.pipeline.table import CHANNEL, COUNT, TEXT, TIME, Table, TableColumn, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GROUP = TableColumn("group_id", TEXT, "Group; null for messages outside groups.")
_MEASURES = (
    TableColumn("message_count", COUNT, "Messages sent."),
    TableColumn("author_count", COUNT, "Authors: members of the group, else peers."),
    TableColumn("payload_bytes", COUNT, "Total size of the payloads."),
    TableColumn("reply_count", COUNT, "Messages that reply to another one."),
    TableColumn("first_message_time", TIME, "Time of the first message."),
    TableColumn("last_message_time", TIME, "Time of the last message."),
)


def message_stats(messages: "DataFrame", *keys: str) -> "DataFrame":
    """The measures for each combination of these columns."""
    from pyspark.sql import functions as F  # noqa: N812

    found = messages.groupBy("channel", *keys).agg(
        F.count("*").alias("message_count"),
        F.countDistinct(F.coalesce("member", "author")).alias("author_count"),
        F.sum("size_bytes").alias("payload_bytes"),
        F.count(F.coalesce("parent_author", "parent_member")).alias("reply_count"),
        F.min("sent_time").alias("first_message_time"),
        F.max("sent_time").alias("last_message_time"),
    )
    return found.na.fill(0, ["payload_bytes"])


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    return TABLE.conform(message_stats(inputs["messages"], "group_id", "topic")).orderBy(
        "channel", F.desc("message_count"), "group_id", "topic"
    )


TABLE = Table(
    "topic_stats",
    "How much was sent on each topic?",
    (CHANNEL, _GROUP, TableColumn("topic", TEXT, "Topic; null for messages without one."), *_MEASURES),
    build,
    depends_on=("messages",),
)

GROUP_COLUMNS = (CHANNEL, _GROUP, TableColumn("topic_count", COUNT, "Number of topics."), *_MEASURES)
"""Columns of the table `group_stats`."""
