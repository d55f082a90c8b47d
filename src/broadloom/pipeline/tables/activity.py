"""Active peers and traffic per channel, by hour and by day in UTC.

A peer is active in an hour if it recorded an event in it, or if one of its messages was received in it. Peers of a day
are counted distinctly; they are not the sum of the hours.
"""

import polars as pl

from broadloom.pipeline.analysis.frames import frame, to_schema
from broadloom.pipeline.table import CHANNEL, COUNT, TEXT, TIME, ChannelInputs, Stage, Table, TableColumn, schema_of
from broadloom.record.arrow_import import pa

PERIODS = {"hour": "1h", "day": "1d"}

COLUMNS = (
    CHANNEL,
    TableColumn("period", TEXT, "`hour` or `day`."),
    TableColumn("start_time", TIME, "Start of the hour or day, in UTC."),
    TableColumn("peer_count", COUNT, "Peers that recorded an event or sent a message."),
    TableColumn("author_count", COUNT, "Peers that broadcast."),
    TableColumn("message_count", COUNT, "Messages broadcast."),
    TableColumn("payload_bytes", COUNT, "Total size of their payloads."),
)


def activity(active: pl.DataFrame, messages: pl.DataFrame) -> pa.Table:
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
    return to_schema(pl.concat(parts).with_columns(counts).sort("channel", "period", "start_time"), schema_of(COLUMNS))


def build(inputs: ChannelInputs) -> pa.Table:
    return activity(inputs.scan("active"), frame(inputs["messages"]))


TABLE = Table(
    "activity",
    "How many peers were active per hour and per day?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("messages",),
)
