"""How long do messages take from sending to delivery, and over how many links? By the reference's clock."""

from typing import TYPE_CHECKING

from weft.pipeline.arrow import latency
from weft.pipeline.partwise import by_parts
from weft.pipeline.table import COUNT, NUMBER, TEXT, TIME, Column, Inputs, Table
from weft.pipeline.tables.clocks import correction
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: Inputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    clocks = correction(inputs)

    def delays(rows: pa.Table) -> pa.Table:
        return latency.delays(rows, clocks)

    rows = inputs.events.where(F.col("kind").isin(*latency.KINDS)).select(*latency.COLUMNS)
    count = inputs.rows or rows.count()
    each = by_parts(rows, ("channel", "author", "sequence"), delays, latency.DELAYS, count)
    return TABLE.shaped(by_parts(each, ("channel", "minute"), latency.percentiles, latency.PERCENTILES, count))


TABLE = Table(
    name="latency",
    question="How long did messages take from sending to delivery, and over how many links, minute by minute?",
    columns=(
        Column("channel", TEXT, "First digits of the channel's id."),
        Column("minute", TIME, "Minute of the sending; of the delivery, if the sending is unknown."),
        Column("deliveries", COUNT, "Deliveries of messages of that minute."),
        Column("unknown", COUNT, "Those without a delay: no tape has the sending, or its clock is tied to no other."),
        Column("delay_p50_us", COUNT, "Half of the deliveries took at most so long."),
        Column("delay_p90_us", COUNT, "Nine of ten took at most so long."),
        Column("delay_p99_us", COUNT, "Ninety-nine of a hundred took at most so long."),
        Column("delay_max_us", COUNT, "The longest."),
        Column("clock_error_us", NUMBER, "A delay is at most so wrong because of clocks; see the table clocks."),
        Column("hops_p50", COUNT, "Half of the deliveries came over at most so many links."),
        Column("hops_p90", COUNT, "Nine of ten."),
        Column("hops_p99", COUNT, "Ninety-nine of a hundred."),
        Column("hops_max", COUNT, "Most links of any delivery."),
    ),
    build=build,
    needs=("clocks",),
)
