"""Who got what, and when? One row a message and receiver."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import deliveries
from broadloom.pipeline.buckets import bucket_count, map_buckets
from broadloom.pipeline.delivery_grid import DeliveryGrid
from broadloom.pipeline.table import Table, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    rows = inputs.events.where(F.col("kind").isin(*deliveries.KINDS)).withColumnRenamed("observer", "receiver")
    grid = DeliveryGrid.of(bucket_count(rows, inputs.rows))
    said = inputs["messages"].select(
        F.lit(deliveries.MESSAGE).alias("kind"),
        "channel",
        "author",
        "sequence",
        F.when(F.col("recorded"), F.col("time")).alias("time"),
    )
    rows = rows.select(grid.cell().alias("bucket"), *deliveries.INPUT_COLUMNS)
    together = rows.unionByName(grid.to_all_receivers(said), allowMissingColumns=True)
    return TABLE.conform(map_buckets(together, F.col("bucket"), grid.cells, deliveries.pair_deliveries, TABLE.ddl))


TABLE = Table("deliveries", "Who got what, and when?", deliveries.COLUMNS, build, depends_on=("messages",))
