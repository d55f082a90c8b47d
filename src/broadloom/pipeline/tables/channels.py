"""One row a channel: how far its tapes reach. Bills need it, because what was not recorded yet cannot be counted."""

from typing import TYPE_CHECKING

from broadloom.pipeline.table import COUNT, TEXT, TIME, Table, TableColumn, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    found = inputs.events.groupBy("channel").agg(
        F.min("time").alias("first"), F.max("time").alias("last"), F.count("*").alias("events")
    )
    return TABLE.conform(found).orderBy("channel")


TABLE = Table(
    "channels",
    "Which channels are on the tapes, and from when to when?",
    (
        TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
        TableColumn("first", TIME, "Earliest event of the channel."),
        TableColumn("last", TIME, "Latest event of the channel."),
        TableColumn("events", COUNT, "Rows of the tapes, from all observers."),
    ),
    build,
)
