"""How far are the clocks of the runs apart? Estimated from the tapes alone: see `arrow/clocks.py`.

All channels together: a process that takes part in several has one clock.
"""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import clock_offsets, link_crossings
from broadloom.pipeline.arrow.clock_correction import ClockCorrection
from broadloom.pipeline.partwise import map_by_key
from broadloom.pipeline.table import COUNT, NUMBER, TEXT, TIME, Table, TableColumn, TableInputs
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    spans = inputs.events.groupBy("run").agg(F.min("time").alias("first"), F.max("time").alias("last")).toArrow()
    fastest = _fastest(inputs) if spans.num_rows > 1 else link_crossings.FASTEST.empty_table()
    return TABLE.conform(inputs.spark.createDataFrame(clock_offsets.estimate_clock_offsets(fastest, spans)))


def correction(inputs: TableInputs) -> ClockCorrection:
    """What the tables that compare times of different runs take off. Small, so it goes along with each task."""
    return ClockCorrection(inputs["clocks"].toArrow())


def _fastest(inputs: TableInputs) -> pa.Table:
    """A row for each two runs that are linked, and minute: few enough for one place."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = inputs.events.where(F.col("kind").isin(*link_crossings.KINDS)).select(*link_crossings.COLUMNS)
    parts = map_by_key(
        rows, link_crossings.MESSAGE, link_crossings.fastest, link_crossings.FASTEST, inputs.rows or rows.count()
    )
    best = parts.groupBy("run_from", "run_to", "minute").agg(
        F.min(F.struct("fastest_us", "at_us")).alias("best"), F.sum("crossings").alias("crossings")
    )
    return best.select("run_from", "run_to", "minute", "best.fastest_us", "best.at_us", "crossings").toArrow()


TABLE = Table(
    name="clocks",
    question="How far are the clocks of the recording processes apart, and how sure is that?",
    columns=(
        TableColumn("run", TEXT, "The recording process."),
        TableColumn("window", TIME, "Beginning of the hour that the row is about, by the run's own clock."),
        TableColumn("reference", TEXT, "The run whose clock is taken as right; itself, if nothing ties it to others."),
        TableColumn("at", TIME, "Moment at which the offset is exactly this; before and after it, the drift adds up."),
        TableColumn(
            "offset_us", NUMBER, "What the run's clock shows more than the reference's; null if nothing tells."
        ),
        TableColumn("drift_ppm", NUMBER, "Microseconds that it gains in a second of the reference's clock."),
        TableColumn("error_us", NUMBER, "The offset is at most so wrong, because no message came before it was sent."),
        TableColumn("crossings", COUNT, "Messages from or to other runs in that hour; 0 if a nearby hour had to do."),
    ),
    build=build,
)
