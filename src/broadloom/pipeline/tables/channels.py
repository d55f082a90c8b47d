"""The time range that the tapes of each channel cover. Invoices need it: time not recorded yet cannot be billed."""

import polars as pl

from broadloom.pipeline.analysis.frames import to_schema
from broadloom.pipeline.table import CHANNEL, COUNT, TIME, ChannelInputs, Stage, Table, TableColumn, schema_of
from broadloom.record.arrow_import import pa

COLUMNS = (
    CHANNEL,
    TableColumn("start_time", TIME, "Time of the first event."),
    TableColumn("end_time", TIME, "Time of the last event."),
    TableColumn("event_count", COUNT, "Rows on the tapes, from all peers."),
)


def build(inputs: ChannelInputs) -> pa.Table:
    runs = inputs.scan("runs")
    found = runs.group_by("channel").agg(
        pl.col("start_time").min(), pl.col("end_time").max(), pl.col("event_count").sum()
    )
    return to_schema(found, schema_of(COLUMNS))


TABLE = Table(
    "channels",
    "Which channels are on the tapes, and which time range do they cover?",
    COLUMNS,
    Stage.MERGE,
    build,
)
