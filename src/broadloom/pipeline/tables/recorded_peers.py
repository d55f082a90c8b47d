"""The peers that recorded: from when to when, and how they ended."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import recorded_peers
from broadloom.pipeline.table import Table, TableInputs, TableSetting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SETTLE = TableSetting(
    "settle_s", 10.0, "A peer that stayed this long after a message was sent, without disruptions, must have it."
)


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    membership = (
        inputs.events.where(F.col("kind").isin(*recorded_peers.MEMBERSHIP_KINDS))
        .select(*recorded_peers.MEMBERSHIP_COLUMNS)
        .toArrow()
    )
    # `rows_dropped` events have no peer; they still count for the end of their run.
    spans = inputs.events.groupBy("channel", "peer", "run_id").agg(
        F.max("event_time").alias("last_event_time"), F.max("ordinal").alias("last_ordinal")
    )
    quarantined = inputs["quarantine"].select("channel", "run_id", "leaves_gap").toArrow()
    settle_s = float(inputs.settings[SETTLE.name])
    found = recorded_peers.recorded_peers(membership, spans.toArrow(), quarantined, settle_s)
    return TABLE.conform(inputs.spark.createDataFrame(found, TABLE.ddl))


TABLE = Table(
    "recorded_peers",
    "Which peers recorded, from when to when, and how did they end?",
    recorded_peers.COLUMNS,
    build,
    depends_on=("quarantine",),
    settings=(SETTLE,),
)
