"""How many copies of each message came, against the (r-1)N+1 of a flood? See `arrow/redundancy.py`."""

from typing import TYPE_CHECKING

from weft.pipeline.arrow import redundancy
from weft.pipeline.partwise import both_by_channel
from weft.pipeline.table import COUNT, NUMBER, TEXT, TIME, Column, Inputs, Table
from weft.pipeline.tables.clocks import correction
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: Inputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    clocks = correction(inputs)

    def compared(seconds: pa.Table, lives: pa.Table) -> pa.Table:
        return redundancy.redundancy(seconds, lives, clocks)

    degrees = inputs["fabric"].groupBy("channel").agg(F.max("degree").alias("degree"))
    seconds = _by_second(inputs.events).join(F.broadcast(degrees), "channel", "left")
    return TABLE.shaped(both_by_channel(seconds, inputs["lives"], compared, redundancy.REDUNDANCY))


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
        Column("channel", TEXT, "First digits of the channel's id."),
        Column("minute", TIME, "Minute in which messages were sent and copies came."),
        Column("messages", COUNT, "Messages sent."),
        Column("peers", NUMBER, "Peers that were there when they were sent, on average."),
        Column("degree", COUNT, "Links that each peer should have: r."),
        Column("received", COUNT, "First copies."),
        Column("duplicates", COUNT, "Further copies; told about once a second, so some may count a minute later."),
        Column("copies", COUNT, "Both together."),
        Column(
            "copies_of_flood", NUMBER, "What floods of these messages bring to the peers that record: (r-1)N+1 each."
        ),
        Column("copies_per_message", NUMBER, "Copies for each message sent; null if none was."),
        Column("share_of_flood", NUMBER, "Copies against those of floods: 1 for floods, less along trees."),
    ),
    build=build,
    needs=("clocks", "lives", "fabric"),
)
