"""The slowest links, receivers and relays of each channel (see `arrow/link_latency.py`)."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import link_crossings, link_latency
from broadloom.pipeline.partwise import map_by_channel, map_by_key
from broadloom.pipeline.table import CHANNEL, COUNT, ID, NUMBER, TEXT, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.clock_offsets import correction
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    clocks = correction(inputs)
    link_ups = inputs.events.where(F.col("kind") == "link_up")
    links_up = link_ups.select("channel", "peer", "neighbor", "event_time").toArrow()

    def histogram(rows: pa.Table) -> pa.Table:
        return link_latency.latency_histogram(rows, clocks, links_up)

    rows = inputs.events.where(F.col("kind").isin(*link_crossings.KINDS)).select(*link_crossings.COLUMNS)
    parts = map_by_key(rows, link_crossings.MESSAGE, histogram, link_latency.HISTOGRAM, inputs.rows or rows.count())
    counts = parts.groupBy("channel", "sender_peer", "receiver", "step").agg(
        F.sum("sample_count").alias("sample_count"),
        F.max("longest_us").alias("longest_us"),
        F.max("clock_error_us").alias("clock_error_us"),
    )
    return TABLE.conform(map_by_channel(counts, link_latency.link_latency, link_latency.LINK_LATENCY))


TABLE = Table(
    name="link_latency",
    question="Which links and peers are slowest?",
    columns=(
        CHANNEL,
        TableColumn("kind", TEXT, "`link` (both ends given), `receiver` or `relay` (one end given)."),
        TableColumn(
            "slowness_rank",
            COUNT,
            f"1 is the slowest of its kind by median; up to {link_latency.RANKS_MAX} are listed.",
        ),
        TableColumn("sender_peer", ID, "Peer that passed the messages on; null for a receiver."),
        TableColumn("receiver", ID, "Peer that received them; null for a relay."),
        TableColumn("sample_count", COUNT, "First copies that came this way and are timed."),
        TableColumn("backfill_count", COUNT, "Messages older than the link, sent to fill gaps; not timed."),
        TableColumn("untimed_count", COUNT, "Messages not timed because the clocks of the two ends are unrelated."),
        TableColumn("latency_p50_ms", NUMBER, "Median latency, accurate to half a percent."),
        TableColumn("latency_p90_ms", NUMBER, "90th percentile."),
        TableColumn("latency_p99_ms", NUMBER, "99th percentile."),
        TableColumn("latency_max_ms", NUMBER, "Longest latency."),
        TableColumn("clock_error_ms", NUMBER, "Largest possible error due to clocks."),
    ),
    build=build,
    depends_on=("clock_offsets",),
)
