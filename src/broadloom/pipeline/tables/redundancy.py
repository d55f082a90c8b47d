"""Copies received per message, compared with the (r-1)N+1 copies of flooding (see `arrow/redundancy.py`)."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import redundancy
from broadloom.pipeline.partwise import cogroup_by_channel
from broadloom.pipeline.table import CHANNEL, COUNT, NUMBER, TIME, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.clock_offsets import correction
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    clocks = correction(inputs)

    def compared(seconds: pa.Table, intervals: pa.Table) -> pa.Table:
        return redundancy.redundancy(seconds, intervals, clocks)

    degrees = inputs["fabric_snapshots"].groupBy("channel").agg(F.max("degree").alias("degree"))
    seconds = _by_second(inputs.events).join(F.broadcast(degrees), "channel", "left")
    intervals = inputs["membership_intervals"]
    return TABLE.conform(cogroup_by_channel(seconds, intervals, compared, redundancy.REDUNDANCY))


def _by_second(events: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    kind = F.col("kind")
    counted = events.where(kind.isin("sent", "received", "duplicates"))
    duplicates = F.sum(F.when(kind == "duplicates", F.col("event_count")))
    return counted.groupBy("channel", "run_id", F.date_trunc("second", "event_time").alias("event_time")).agg(
        F.count_if(kind == "sent").alias("message_count"),
        F.count_if(kind == "received").alias("first_copy_count"),
        F.coalesce(duplicates, F.lit(0)).alias("duplicate_count"),
    )


TABLE = Table(
    name="redundancy",
    question="How many copies arrived per message, compared with flooding?",
    columns=(
        CHANNEL,
        TableColumn("start_time", TIME, "Minute in which messages were sent and copies received."),
        TableColumn("message_count", COUNT, "Messages sent."),
        TableColumn("peer_count_mean", NUMBER, "Mean number of peers present when they were sent."),
        TableColumn("degree", COUNT, "Links that each peer should have: r."),
        TableColumn("first_copy_count", COUNT, "First copies received."),
        TableColumn(
            "duplicate_count", COUNT, "Further copies received; recorded once a second, so some count a minute later."
        ),
        TableColumn("copy_count", COUNT, "All copies received."),
        TableColumn("flood_copy_count", NUMBER, "Copies that flooding would bring to the recorded peers: (r-1)N+1."),
        TableColumn("copies_per_message", NUMBER, "Copies per message sent; null if none was sent."),
        TableColumn("flood_ratio", NUMBER, "Copies relative to flooding: 1 when flooding, less with Plumtree."),
    ),
    build=build,
    depends_on=("clock_offsets", "membership_intervals", "fabric_snapshots"),
)
