"""Messages and authors per group and topic of a channel.

Messages without a group or topic have a row too (null), so that the rows add up to all messages.
"""

import polars as pl

from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column

_GROUP = column("group_id", "Group; null for messages outside groups.")
_MEASURES = (
    column("message_count", "Messages sent."),
    column("author_count", "Authors: members of the group, else peers."),
    column("payload_bytes", "Total size of the payloads."),
    column("reply_count", "Messages that reply to another one."),
    column("first_message_time", "Time of the first message."),
    column("last_message_time", "Time of the last message."),
)

COLUMNS = (CHANNEL, _GROUP, column("topic", "Topic; null for messages without one."), *_MEASURES)
GROUP_COLUMNS = (CHANNEL, _GROUP, column("topic_count", "Number of topics."), *_MEASURES)
"""Columns of the table `group_stats`."""


def message_stats(messages: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """The measures for each combination of these columns, the largest first."""
    found = messages.group_by("channel", *keys).agg(
        topic_count=pl.col("topic").drop_nulls().n_unique(),
        message_count=pl.len(),
        author_count=pl.coalesce("member", "author").drop_nulls().n_unique(),
        payload_bytes=pl.col("size_bytes").sum(),
        reply_count=pl.coalesce("parent_author", "parent_member").count(),
        first_message_time=pl.col("sent_time").min(),
        last_message_time=pl.col("sent_time").max(),
    )
    return found.sort("channel", "message_count", *keys, descending=[False, True, *(False for _ in keys)])


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return conform(message_stats(inputs["messages"], "group_id", "topic"), COLUMNS)


TABLE = Table(
    "topic_stats", "How much was sent on each topic?", COLUMNS, Stage.CHANNEL, build, depends_on=("messages",)
)
