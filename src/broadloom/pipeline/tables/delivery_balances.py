"""What was each member owed of each author, and did it get it? One row an author and member."""

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
    "clock_s", 0.5, "How far the clocks of two machines may differ: who was first within that is left open."
)


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    had = inputs["deliveries"].select(*delivery_balances.DELIVERY_COLUMNS)
    grid = DeliveryGrid.of(bucket_count(had, inputs.rows // 2))
    members = inputs["members"].withColumn("column", grid.column("peer")).toArrow()
    settle_s, clock_s = float(inputs.settings[SETTLE.name]), float(inputs.settings[CLOCK_TOLERANCE.name])
    limits = delivery_balances.author_bounds(
        _authors(inputs).toArrow(), _last_held(inputs).toArrow(), members, settle_s
    )
    ground = delivery_balances.AuditInputs(members, limits, _dropped_rows(inputs).toArrow(), settle_s, clock_s)
    said = grid.to_all_receivers(inputs["messages"].select(*delivery_balances.MESSAGE_COLUMNS))
    together = had.withColumn("bucket", grid.cell()).unionByName(said, allowMissingColumns=True)
    together = together.withColumn("column", F.col("bucket") % grid.receivers)
    found = map_buckets(
        together, F.col("bucket"), grid.cells, lambda rows: delivery_balances.delivery_balances(rows, ground), TABLE.ddl
    )
    return TABLE.conform(found)


def _authors(inputs: TableInputs) -> "DataFrame":
    """When each author noted its last message."""
    from pyspark.sql import functions as F  # noqa: N812

    noted = F.max(F.when(F.col("recorded"), F.col("time")))
    return inputs["messages"].groupBy("channel", "author").agg(noted.alias("last"))


def _last_held(inputs: TableInputs) -> "DataFrame":
    """The last message of each author that a present member has, or was told of."""
    from pyspark.sql import functions as F  # noqa: N812

    present = inputs["members"].where("ending = 'present'").select("channel", F.col("peer").alias("receiver"))
    held = inputs["deliveries"].join(F.broadcast(present), ["channel", "receiver"], "left_semi")
    held = held.where("copies > 0 OR missed IS NOT NULL")
    return held.groupBy("channel", "author").agg(F.max("sequence").alias("held"))


def _dropped_rows(inputs: TableInputs) -> "DataFrame":
    """When rows of which runs are lacking; null stands for any time."""
    from pyspark.sql import functions as F  # noqa: N812

    told = inputs.events.where(f"kind = '{EventKind.ROWS_DROPPED.value}'").select(
        "channel", "run", F.col("time").alias("begin"), F.col("until").alias("end")
    )
    aside = inputs["quarantine"].where("lacking").select("channel", "run")
    return told.unionByName(aside, allowMissingColumns=True)


TABLE = Table(
    "accounts",
    "What was each member owed of each author, and did it get it?",
    delivery_balances.COLUMNS,
    build,
    depends_on=("quarantine", "messages", "deliveries", "members"),
    settings=(SETTLE, CLOCK_TOLERANCE),
)
