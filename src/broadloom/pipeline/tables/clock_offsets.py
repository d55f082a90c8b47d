"""Clock offsets of the recording processes, estimated from the tapes alone (see `arrow/clock_offsets.py`).

Estimated over all channels together: a process that takes part in several has one clock.
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

    span = F.min("event_time").alias("start_time"), F.max("event_time").alias("end_time")
    spans = inputs.events.groupBy("run_id").agg(*span).toArrow()
    fastest = _fastest(inputs) if spans.num_rows > 1 else link_crossings.FASTEST.empty_table()
    return TABLE.conform(inputs.spark.createDataFrame(clock_offsets.estimate_clock_offsets(fastest, spans)))


def correction(inputs: TableInputs) -> ClockCorrection:
    """The correction for tables that compare times of different runs. Small enough to be sent with every task."""
    return ClockCorrection(inputs["clock_offsets"].toArrow())


def _fastest(inputs: TableInputs) -> pa.Table:
    """One row per linked pair of runs and minute: small enough for the driver."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = inputs.events.where(F.col("kind").isin(*link_crossings.KINDS)).select(*link_crossings.COLUMNS)
    parts = map_by_key(
        rows, link_crossings.MESSAGE, link_crossings.fastest, link_crossings.FASTEST, inputs.rows or rows.count()
    )
    best = parts.groupBy("run_from", "run_to", "minute_us").agg(
        F.min(F.struct("fastest_us", "at_us")).alias("best"), F.sum("sample_count").alias("sample_count")
    )
    return best.select("run_from", "run_to", "minute_us", "best.fastest_us", "best.at_us", "sample_count").toArrow()


TABLE = Table(
    name="clock_offsets",
    question="How far apart are the clocks of the recording processes?",
    columns=(
        TableColumn("run_id", TEXT, "Recording process."),
        TableColumn("start_time", TIME, "Start of the hour this row covers, by the run's own clock."),
        TableColumn("reference_run_id", TEXT, "Run whose clock is the reference; the run itself if it is isolated."),
        TableColumn("offset_time", TIME, "Time at which `offset_ms` is exact; the drift adds up from there."),
        TableColumn("offset_ms", NUMBER, "How far the run's clock is ahead of the reference; null if unknown."),
        TableColumn("drift_ppm", NUMBER, "Microseconds gained per second of the reference clock."),
        TableColumn("error_ms", NUMBER, "Largest possible error: no message arrives before it is sent."),
        TableColumn("sample_count", COUNT, "Messages to or from other runs in that hour; 0: taken from a near hour."),
    ),
    build=build,
)
