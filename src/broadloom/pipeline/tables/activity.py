"""Active peers and traffic per channel, by hour and by day in UTC.

A peer is active in an hour if it recorded an event in it, or if one of its messages was received in it. Peers of a day
are counted distinctly; they are not the sum of the hours.
"""

import polars as pl

from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column

PERIODS = {"hour": "1h", "day": "1d"}

COLUMNS = (
    CHANNEL,
    column("period", "`hour` or `day`."),
    column("start_time", "Start of the hour or day, in UTC."),
    column("peer_count", "Peers that recorded an event or sent a message."),
    column("author_count", "Peers that broadcast."),
    column("message_count", "Messages broadcast."),
    column("payload_bytes", "Total size of their payloads."),
)


def activity(active: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """`active` has the hours and peers of a channel, each pair once or more."""
    parts = []
    for period, length in PERIODS.items():
        peers = active.group_by("channel", start_time=pl.col("start_time").dt.truncate(length)).agg(
            peer_count=pl.col("peer").drop_nulls().n_unique()
        )
        traffic = messages.group_by("channel", start_time=pl.col("sent_time").dt.truncate(length)).agg(
            author_count=pl.col("author").drop_nulls().n_unique(),
            message_count=pl.len(),
            payload_bytes=pl.col("size_bytes").sum(),
        )
        joined = peers.join(traffic, on=["channel", "start_time"], how="full", coalesce=True)
        parts.append(joined.with_columns(period=pl.lit(period)))
    counts = pl.col("peer_count", "author_count", "message_count", "payload_bytes").fill_null(0)
    return conform(pl.concat(parts).with_columns(counts).sort("channel", "period", "start_time"), COLUMNS)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return activity(inputs.scan("active"), inputs["messages"])


TABLE = Table(
    "activity",
    "How many peers were active per hour and per day?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("messages",),
)
