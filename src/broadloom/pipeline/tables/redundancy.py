"""How many copies of each message came, against the (r-1)N+1 of a flood? See `arrow/redundancy.py`."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import redundancy
from broadloom.pipeline.partwise import cogroup_by_channel
from broadloom.pipeline.table import COUNT, NUMBER, TEXT, TIME, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.clock_offsets import correction
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    clocks = correction(inputs)

    def compared(seconds: pa.Table, lives: pa.Table) -> pa.Table:
        return redundancy.redundancy(seconds, lives, clocks)

    degrees = inputs["fabric"].groupBy("channel").agg(F.max("degree").alias("degree"))
    seconds = _by_second(inputs.events).join(F.broadcast(degrees), "channel", "left")
    return TABLE.conform(cogroup_by_channel(seconds, inputs["lives"], compared, redundancy.REDUNDANCY))


def _by_second(events: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    counted = events.where(F.col("kind").isin("sent", "received", "duplicates"))
    return counted.groupBy("channel", "run", F.date_trunc("second", "time").alias("time")).agg(
        F.count_if(F.col("kind") == "sent").alias("sent"),
        F.count_if(F.col("kind") == "received").alias("received"),
        F.coalesce(F.sum(F.when(F.col("kind") == "duplicates", F.col("count"))), F.lit(0)).alias("duplicates"),
    )


TABLE = Table(
    name="redundancy",
    question="How many copies of messages came, minute by minute, against what a flood sends?",
    columns=(
        TableColumn("channel", TEXT, "First digits of the channel's id."),
        TableColumn("minute", TIME, "Minute in which messages were sent and copies came."),
        TableColumn("messages", COUNT, "Messages sent."),
        TableColumn("peers", NUMBER, "Peers that were there when they were sent, on average."),
        TableColumn("degree", COUNT, "Links that each peer should have: r."),
        TableColumn("received", COUNT, "First copies."),
        TableColumn("duplicates", COUNT, "Further copies; told about once a second, so some may count a minute later."),
        TableColumn("copies", COUNT, "Both together."),
        TableColumn(
            "copies_of_flood", NUMBER, "What floods of these messages bring to the peers that record: (r-1)N+1 each."
        ),
        TableColumn("copies_per_message", NUMBER, "Copies for each message sent; null if none was."),
        TableColumn("share_of_flood", NUMBER, "Copies against those of floods: 1 for floods, less along trees."),
    ),
    build=build,
    depends_on=("clocks", "lives", "fabric"),
)
