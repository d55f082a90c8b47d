"""For each author and receiver: how many messages were due, and how many arrived."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import delivery_balances
from broadloom.pipeline.buckets import bucket_count, map_buckets
from broadloom.pipeline.delivery_grid import DeliveryGrid
from broadloom.pipeline.table import Table, TableInputs, TableSetting
from broadloom.pipeline.tables.recorded_peers import SETTLE
from broadloom.record.schema import EventKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CLOCK_TOLERANCE = TableSetting(
    "clock_tolerance_s",
    0.5,
    "How far the clocks of two machines may differ. Events closer together than that are not ordered by time.",
)


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    deliveries = inputs["deliveries"].select(*delivery_balances.DELIVERY_COLUMNS)
    grid = DeliveryGrid.of(bucket_count(deliveries, inputs.rows // 2))
    peers = inputs["recorded_peers"].withColumn("grid_column", grid.column("peer")).toArrow()
    settle_s, tolerance_s = float(inputs.settings[SETTLE.name]), float(inputs.settings[CLOCK_TOLERANCE.name])
    bounds = delivery_balances.author_bounds(_authors(inputs).toArrow(), _last_held(inputs).toArrow(), peers, settle_s)
    audit_inputs = delivery_balances.AuditInputs(peers, bounds, _dropped_rows(inputs).toArrow(), settle_s, tolerance_s)
    messages = grid.to_all_receivers(inputs["messages"].select(*delivery_balances.MESSAGE_COLUMNS))
    rows = deliveries.withColumn("bucket", grid.cell()).unionByName(messages, allowMissingColumns=True)
    rows = rows.withColumn("grid_column", F.col("bucket") % grid.receivers)
    balances = map_buckets(
        rows,
        F.col("bucket"),
        grid.cells,
        lambda rows: delivery_balances.delivery_balances(rows, audit_inputs),
        TABLE.ddl,
    )
    return TABLE.conform(balances)


def _authors(inputs: TableInputs) -> "DataFrame":
    """When each author recorded its last message."""
    from pyspark.sql import functions as F  # noqa: N812

    last_sent = F.max(F.when(F.col("is_recorded"), F.col("sent_time")))
    return inputs["messages"].groupBy("channel", "author").agg(last_sent.alias("last_sent_time"))


def _last_held(inputs: TableInputs) -> "DataFrame":
    """The last message of each author that a present peer has, or was reported to have missed."""
    from pyspark.sql import functions as F  # noqa: N812

    present = inputs["recorded_peers"].where("end_status = 'present'")
    present = present.select("channel", F.col("peer").alias("receiver"))
    held = inputs["deliveries"].join(F.broadcast(present), ["channel", "receiver"], "left_semi")
    held = held.where("delivery_count > 0 OR missed_time IS NOT NULL")
    return held.groupBy("channel", "author").agg(F.max("sequence").alias("held"))


def _dropped_rows(inputs: TableInputs) -> "DataFrame":
    """Time ranges in which rows of a run are missing; null means any time."""
    from pyspark.sql import functions as F  # noqa: N812

    dropped = inputs.events.where(f"kind = '{EventKind.ROWS_DROPPED.value}'").select(
        "channel", "run_id", F.col("event_time").alias("gap_start"), F.col("end_time").alias("gap_end")
    )
    quarantined = inputs["quarantine"].where("leaves_gap").select("channel", "run_id")
    return dropped.unionByName(quarantined, allowMissingColumns=True)


TABLE = Table(
    "delivery_balances",
    "For each author and receiver: how many messages were due, and how many arrived?",
    delivery_balances.COLUMNS,
    build,
    depends_on=("quarantine", "messages", "deliveries", "recorded_peers"),
    settings=(SETTLE, CLOCK_TOLERANCE),
)
