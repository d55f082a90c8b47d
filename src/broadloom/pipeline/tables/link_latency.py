"""Which links and peers are slow? The time of each message over each link: see `arrow/slowest.py`."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import link_crossings, link_latency
from broadloom.pipeline.partwise import map_by_channel, map_by_key
from broadloom.pipeline.table import COUNT, ID, NUMBER, TEXT, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.clock_offsets import correction
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    clocks = correction(inputs)
    came_up = inputs.events.where(F.col("kind") == "link_up")
    links_up = came_up.select("channel", "observer", "neighbour", "time").toArrow()

    def steps(rows: pa.Table) -> pa.Table:
        return link_latency.latency_histogram(rows, clocks, links_up)

    rows = inputs.events.where(F.col("kind").isin(*link_crossings.KINDS)).select(*link_crossings.COLUMNS)
    parts = map_by_key(rows, link_crossings.MESSAGE, steps, link_latency.COUNTS, inputs.rows or rows.count())
    counts = parts.groupBy("channel", "neighbour", "observer", "step").agg(
        F.sum("crossings").alias("crossings"),
        F.max("longest_us").alias("longest_us"),
        F.max("clock_error_us").alias("clock_error_us"),
    )
    return TABLE.conform(map_by_channel(counts, link_latency.link_latency, link_latency.LINK_LATENCY))


TABLE = Table(
    name="slowest",
    question="Over which links, into which peers and out of which peers do messages take longest?",
    columns=(
        TableColumn("channel", TEXT, "First digits of the channel's id."),
        TableColumn("what", TEXT, "link (both ends given), receiver (into `observer`) or relay (out of `neighbour`)."),
        TableColumn(
            "rank", COUNT, f"1 is the slowest of its kind, by the middle time; up to {link_latency.RANKS_MAX} are told."
        ),
        TableColumn("neighbour", ID, "The end that handed messages on; null for a receiver."),
        TableColumn("observer", ID, "The end that got them; null for a relay."),
        TableColumn("crossings", COUNT, "First copies that came this way, and are timed."),
        TableColumn(
            "caught_up", COUNT, "Messages older than the link, brought to make up for what was missed: not timed."
        ),
        TableColumn("unknown", COUNT, "Not timed because nothing ties the clocks of the two ends."),
        TableColumn("took_p50_us", COUNT, "Half of them took at most so long, to half a percent."),
        TableColumn("took_p90_us", COUNT, "Nine of ten."),
        TableColumn("took_p99_us", COUNT, "Ninety-nine of a hundred."),
        TableColumn("took_max_us", COUNT, "The longest."),
        TableColumn("clock_error_us", NUMBER, "A time is at most so wrong because of clocks."),
    ),
    build=build,
    depends_on=("clocks",),
)
