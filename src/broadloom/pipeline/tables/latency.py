"""Latency and hops from sending to delivery per minute, with clocks corrected."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import latency
from broadloom.pipeline.partwise import map_by_key
from broadloom.pipeline.table import CHANNEL, COUNT, NUMBER, TIME, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.clock_offsets import correction
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    clocks = correction(inputs)

    def latencies(rows: pa.Table) -> pa.Table:
        return latency.latencies(rows, clocks)

    rows = inputs.events.where(F.col("kind").isin(*latency.KINDS)).select(*latency.COLUMNS)
    count = inputs.rows or rows.count()
    each = map_by_key(rows, ("channel", "author", "sequence"), latencies, latency.LATENCIES, count)
    return TABLE.conform(map_by_key(each, ("channel", "start_time"), latency.percentiles, latency.PERCENTILES, count))


TABLE = Table(
    name="latency",
    question="How long did deliveries take, and over how many hops?",
    columns=(
        CHANNEL,
        TableColumn("start_time", TIME, "Minute in which the messages were sent; if unknown, delivered."),
        TableColumn("delivery_count", COUNT, "Deliveries of these messages."),
        TableColumn(
            "untimed_count",
            COUNT,
            "Deliveries without a latency: the sending is on no tape, or the clocks are unrelated.",
        ),
        TableColumn("latency_p50_ms", NUMBER, "Median latency."),
        TableColumn("latency_p90_ms", NUMBER, "90th percentile."),
        TableColumn("latency_p99_ms", NUMBER, "99th percentile."),
        TableColumn("latency_max_ms", NUMBER, "Longest latency."),
        TableColumn("clock_error_ms", NUMBER, "Largest possible error due to clocks; see `clock_offsets`."),
        TableColumn("hops_p50", COUNT, "Median number of links traveled."),
        TableColumn("hops_p90", COUNT, "90th percentile."),
        TableColumn("hops_p99", COUNT, "99th percentile."),
        TableColumn("hops_max", COUNT, "Most links traveled."),
    ),
    build=build,
    depends_on=("clock_offsets",),
)
