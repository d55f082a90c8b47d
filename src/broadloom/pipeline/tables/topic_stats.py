"""Messages and authors per group and topic of a channel.

Messages without a group or topic have a row too (null), so that the rows add up to all messages.
"""

import polars as pl

from broadloom.pipeline.analysis.frames import frame, to_schema
from broadloom.pipeline.table import CHANNEL, COUNT, TEXT, TIME, ChannelInputs, Stage, Table, TableColumn, schema_of
from broadloom.record.arrow_import import pa

_GROUP = TableColumn("group_id", TEXT, "Group; null for messages outside groups.")
_MEASURES = (
    TableColumn("message_count", COUNT, "Messages sent."),
    TableColumn("author_count", COUNT, "Authors: members of the group, else peers."),
    TableColumn("payload_bytes", COUNT, "Total size of the payloads."),
    TableColumn("reply_count", COUNT, "Messages that reply to another one."),
    TableColumn("first_message_time", TIME, "Time of the first message."),
    TableColumn("last_message_time", TIME, "Time of the last message."),
)

COLUMNS = (CHANNEL, _GROUP, TableColumn("topic", TEXT, "Topic; null for messages without one."), *_MEASURES)
GROUP_COLUMNS = (CHANNEL, _GROUP, TableColumn("topic_count", COUNT, "Number of topics."), *_MEASURES)
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


def build(inputs: ChannelInputs) -> pa.Table:
    return to_schema(message_stats(frame(inputs["messages"]), "group_id", "topic"), schema_of(COLUMNS))


TABLE = Table(
    "topic_stats", "How much was sent on each topic?", COLUMNS, Stage.CHANNEL, build, depends_on=("messages",)
)
