"""One row per message and receiver."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import deliveries
from broadloom.pipeline.buckets import bucket_count, map_buckets
from broadloom.pipeline.delivery_grid import DeliveryGrid
from broadloom.pipeline.table import Table, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    rows = inputs.events.where(F.col("kind").isin(*deliveries.KINDS)).withColumnRenamed("peer", "receiver")
    grid = DeliveryGrid.of(bucket_count(rows, inputs.rows))
    messages = inputs["messages"].select(
        F.lit(deliveries.MESSAGE).alias("kind"),
        "channel",
        "author",
        "sequence",
        F.when(F.col("is_recorded"), F.col("sent_time")).alias("event_time"),
    )
    rows = rows.select(grid.cell().alias("bucket"), *deliveries.INPUT_COLUMNS)
    rows = rows.unionByName(grid.to_all_receivers(messages), allowMissingColumns=True)
    return TABLE.conform(map_buckets(rows, F.col("bucket"), grid.cells, deliveries.pair_deliveries, TABLE.ddl))


TABLE = Table(
    "deliveries",
    "Which receiver got which message, and when?",
    deliveries.COLUMNS,
    build,
    depends_on=("messages",),
)
