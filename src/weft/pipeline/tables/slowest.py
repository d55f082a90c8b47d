"""Which links and peers are slow? The time of each message over each link: see `arrow/slowest.py`."""

from typing import TYPE_CHECKING

from weft.pipeline.arrow import crossings, slowest
from weft.pipeline.partwise import by_channel, by_parts
from weft.pipeline.table import COUNT, ID, NUMBER, TEXT, Column, Inputs, Table
from weft.pipeline.tables.clocks import correction
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: Inputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    clocks = correction(inputs)
    came_up = inputs.events.where(F.col("kind") == "link_up")
    links_up = came_up.select("channel", "observer", "neighbour", "time").toArrow()

    def steps(rows: pa.Table) -> pa.Table:
        return slowest.steps(rows, clocks, links_up)

    rows = inputs.events.where(F.col("kind").isin(*crossings.KINDS)).select(*crossings.COLUMNS)
    parts = by_parts(rows, crossings.MESSAGE, steps, slowest.COUNTS, inputs.rows or rows.count())
    counts = parts.groupBy("channel", "neighbour", "observer", "step").agg(
        F.sum("crossings").alias("crossings"),
        F.max("longest_us").alias("longest_us"),
        F.max("clock_error_us").alias("clock_error_us"),
    )
    return TABLE.shaped(by_channel(counts, slowest.slowest, slowest.SLOWEST))


TABLE = Table(
    name="slowest",
    question="Over which links, into which peers and out of which peers do messages take longest?",
    columns=(
        Column("channel", TEXT, "First digits of the channel's id."),
        Column("what", TEXT, "link (both ends given), receiver (into `observer`) or relay (out of `neighbour`)."),
        Column("rank", COUNT, f"1 is the slowest of its kind, by the middle time; up to {slowest.RANKS_MAX} are told."),
        Column("neighbour", ID, "The end that handed messages on; null for a receiver."),
        Column("observer", ID, "The end that got them; null for a relay."),
        Column("crossings", COUNT, "First copies that came this way, and are timed."),
        Column("caught_up", COUNT, "Messages older than the link, brought to make up for what was missed: not timed."),
        Column("unknown", COUNT, "Not timed because nothing ties the clocks of the two ends."),
        Column("took_p50_us", COUNT, "Half of them took at most so long, to half a percent."),
        Column("took_p90_us", COUNT, "Nine of ten."),
        Column("took_p99_us", COUNT, "Ninety-nine of a hundred."),
        Column("took_max_us", COUNT, "The longest."),
        Column("clock_error_us", NUMBER, "A time is at most so wrong because of clocks."),
    ),
    build=build,
    needs=("clocks",),
)
