"""One row a group and topic of a channel: how much was said there and by how many.

What belongs to no group, or is about no topic, has its row too (null), so that the messages add up to all.
"""

from typing import TYPE_CHECKING

from weft.pipeline.table import COUNT, TEXT, TIME, Column, Inputs, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MEASURES = (
    Column("messages", COUNT, "Messages said there."),
    Column("authors", COUNT, "Who said something there, how many: members of the group, else peers."),
    Column("bytes", COUNT, "The payloads together."),
    Column("responses", COUNT, "How many of the messages respond to another."),
    Column("first", TIME, "The first message."),
    Column("last", TIME, "The last message."),
)


def said_by(messages: "DataFrame", *keys: str) -> "DataFrame":
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


def build(inputs: Inputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    return TABLE.shaped(said_by(inputs["messages"], "group", "topic")).orderBy(
        "channel", F.desc("messages"), "`group`", "topic"
    )


TABLE = Table(
    "topics",
    "What was talked about in which group?",
    (
        Column("channel", TEXT, "First 16 digits of the channel's id."),
        Column("group", TEXT, "The group; null for messages to the whole channel."),
        Column("topic", TEXT, "The topic; null for messages without one."),
        *_MEASURES,
    ),
    build,
    needs=("messages",),
)

GROUPS = (
    Column("channel", TEXT, "First 16 digits of the channel's id."),
    Column("group", TEXT, "The group; null for messages to the whole channel."),
    Column("topics", COUNT, "How many topics."),
    *_MEASURES,
)
"""Of the table groups, which asks the same of whole groups."""
