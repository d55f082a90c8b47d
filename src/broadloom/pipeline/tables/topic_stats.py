"""One row a group and topic of a channel: how much was said there and by how many.

What belongs to no group, or is about no topic, has its row too (null), so that the messages add up to all.
"""

from typing import TYPE_CHECKING

from broadloom.pipeline.table import COUNT, TEXT, TIME, Table, TableColumn, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MEASURES = (
    TableColumn("messages", COUNT, "Messages said there."),
    TableColumn("authors", COUNT, "Who said something there, how many: members of the group, else peers."),
    TableColumn("bytes", COUNT, "The payloads together."),
    TableColumn("responses", COUNT, "How many of the messages respond to another."),
    TableColumn("first", TIME, "The first message."),
    TableColumn("last", TIME, "The last message."),
)


def message_stats(messages: "DataFrame", *keys: str) -> "DataFrame":
    """The measures for each value of these columns."""
    from pyspark.sql import functions as F  # noqa: N812

    found = messages.groupBy("channel", *(F.col(f"`{each}`") for each in keys)).agg(
        F.count("*").alias("messages"),
        F.countDistinct(F.coalesce("member", "author")).alias("authors"),
        F.sum("size").alias("bytes"),
        F.count(F.coalesce("parent_author", "parent_member")).alias("responses"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
    )
    return found.na.fill(0, ["bytes"])


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    return TABLE.conform(message_stats(inputs["messages"], "group", "topic")).orderBy(
        "channel", F.desc("messages"), "`group`", "topic"
    )


TABLE = Table(
    "topics",
    "What was talked about in which group?",
    (
        TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
        TableColumn("group", TEXT, "The group; null for messages to the whole channel."),
        TableColumn("topic", TEXT, "The topic; null for messages without one."),
        *_MEASURES,
    ),
    build,
    depends_on=("messages",),
)

GROUPS = (
    TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
    TableColumn("group", TEXT, "The group; null for messages to the whole channel."),
    TableColumn("topics", COUNT, "How many topics."),
    *_MEASURES,
)
"""Of the table groups, which asks the same of whole groups."""
