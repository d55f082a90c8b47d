"""How long do messages take from sending to delivery, and over how many links? By the reference's clock."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import latency
from broadloom.pipeline.partwise import map_by_key
from broadloom.pipeline.table import COUNT, NUMBER, TEXT, TIME, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.clock_offsets import correction
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    clocks = correction(inputs)

    def delays(rows: pa.Table) -> pa.Table:
        return latency.latencies(rows, clocks)

    rows = inputs.events.where(F.col("kind").isin(*latency.KINDS)).select(*latency.COLUMNS)
    count = inputs.rows or rows.count()
    each = map_by_key(rows, ("channel", "author", "sequence"), delays, latency.LATENCIES, count)
    return TABLE.conform(map_by_key(each, ("channel", "minute"), latency.percentiles, latency.PERCENTILES, count))


TABLE = Table(
    name="latency",
    question="How long did messages take from sending to delivery, and over how many links, minute by minute?",
    columns=(
        TableColumn("channel", TEXT, "First digits of the channel's id."),
        TableColumn("minute", TIME, "Minute of the sending; of the delivery, if the sending is unknown."),
        TableColumn("deliveries", COUNT, "Deliveries of messages of that minute."),
        TableColumn(
            "unknown", COUNT, "Those without a delay: no tape has the sending, or its clock is tied to no other."
        ),
        TableColumn("delay_p50_us", COUNT, "Half of the deliveries took at most so long."),
        TableColumn("delay_p90_us", COUNT, "Nine of ten took at most so long."),
        TableColumn("delay_p99_us", COUNT, "Ninety-nine of a hundred took at most so long."),
        TableColumn("delay_max_us", COUNT, "The longest."),
        TableColumn("clock_error_us", NUMBER, "A delay is at most so wrong because of clocks; see the table clocks."),
        TableColumn("hops_p50", COUNT, "Half of the deliveries came over at most so many links."),
        TableColumn("hops_p90", COUNT, "Nine of ten."),
        TableColumn("hops_p99", COUNT, "Ninety-nine of a hundred."),
        TableColumn("hops_max", COUNT, "Most links of any delivery."),
    ),
    build=build,
    depends_on=("clocks",),
)
