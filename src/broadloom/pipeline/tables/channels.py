"""The time range that the tapes of each channel cover. Invoices need it: time not recorded yet cannot be billed."""

import polars as pl

from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column

COLUMNS = (
    CHANNEL,
    column("start_time", "Time of the first event."),
    column("end_time", "Time of the last event."),
    column("event_count", "Rows on the tapes, from all peers."),
)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    runs = inputs.scan("runs")
    found = runs.group_by("channel").agg(
        pl.col("start_time").min(), pl.col("end_time").max(), pl.col("event_count").sum()
    )
    return conform(found, COLUMNS)


TABLE = Table(
    "channels",
    "Which channels are on the tapes, and which time range do they cover?",
    COLUMNS,
    Stage.MERGE,
    build,
)
