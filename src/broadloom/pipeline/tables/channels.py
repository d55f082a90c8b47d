"""The time range that the tapes of each channel cover. Invoices need it: time not recorded yet cannot be billed."""

from typing import TYPE_CHECKING

from broadloom.pipeline.table import CHANNEL, COUNT, TIME, Table, TableColumn, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    found = inputs.events.groupBy("channel").agg(
        F.min("event_time").alias("start_time"),
        F.max("event_time").alias("end_time"),
        F.count("*").alias("event_count"),
    )
    return TABLE.conform(found).orderBy("channel")


TABLE = Table(
    "channels",
    "Which channels are on the tapes, and which time range do they cover?",
    (
        CHANNEL,
        TableColumn("start_time", TIME, "Time of the first event."),
        TableColumn("end_time", TIME, "Time of the last event."),
        TableColumn("event_count", COUNT, "Rows on the tapes, from all peers."),
    ),
    build,
)
