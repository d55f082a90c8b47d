"""How much each author of a channel sent, the busiest first."""

import polars as pl

from broadloom.pipeline.analysis.frames import frame, to_schema
from broadloom.pipeline.analysis.subscribers import identities
from broadloom.pipeline.table import CHANNEL, COUNT, ID, TEXT, TIME, ChannelInputs, Stage, Table, TableColumn, schema_of
from broadloom.record.arrow_import import pa

COLUMNS = (
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
)


def author_stats(messages: pl.DataFrame, names: pl.DataFrame) -> pa.Table:
    """`names` has peer and name."""
    stats = messages.group_by("channel", "author").agg(
        message_count=pl.len(),
        payload_bytes=pl.col("size_bytes").sum(),
        reply_count=pl.coalesce("parent_author", "parent_member").count(),
        group_count=pl.col("group_id").drop_nulls().n_unique(),
        topic_count=pl.col("topic").drop_nulls().n_unique(),
        first_message_time=pl.col("sent_time").min(),
        last_message_time=pl.col("sent_time").max(),
    )
    ranked = stats.join(names.rename({"peer": "author"}), on="author", how="left").sort(
        "channel", "message_count", "payload_bytes", "author", descending=[False, True, True, False]
    )
    return to_schema(ranked.with_columns(volume_rank=pl.int_range(1, pl.len() + 1).over("channel")), schema_of(COLUMNS))


def build(inputs: ChannelInputs) -> pa.Table:
    return author_stats(frame(inputs["messages"]), identities(inputs.scan("names")).select("peer", "name"))


TABLE = Table("author_stats", "How much did each author send?", COLUMNS, Stage.CHANNEL, build, depends_on=("messages",))
