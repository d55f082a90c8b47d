"""How much each author of a channel sent, the busiest first."""

import polars as pl

from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.analysis.subscribers import identities
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column

COLUMNS = (
    CHANNEL,
    column("volume_rank", "1 for the author with most messages in the channel; ties by bytes."),
    column("author", "Peer ID of the author."),
    column("name", "Display name, if known."),
    column("message_count", "Messages broadcast."),
    column("payload_bytes", "Total size of their payloads."),
    column("reply_count", "Messages that reply to another one."),
    column("group_count", "Groups posted in."),
    column("topic_count", "Topics posted on."),
    column("first_message_time", "Time of the first message."),
    column("last_message_time", "Time of the last message."),
)


def author_stats(messages: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
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
    return conform(ranked.with_columns(volume_rank=pl.int_range(1, pl.len() + 1).over("channel")), COLUMNS)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return author_stats(inputs["messages"], identities(inputs.scan("names")).select("peer", "name"))


TABLE = Table("author_stats", "How much did each author send?", COLUMNS, Stage.CHANNEL, build, depends_on=("messages",))
