"""Who got what, and when? One row a message and receiver."""

from typing import TYPE_CHECKING

from weft.pipeline.arrow import deliveries
from weft.pipeline.buckets import bucket_count, in_buckets
from weft.pipeline.grid import Grid
from weft.pipeline.table import Inputs, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: Inputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    rows = inputs.events.where(F.col("kind").isin(*deliveries.KINDS)).withColumnRenamed("observer", "receiver")
    grid = Grid.of(bucket_count(rows, inputs.rows))
    said = inputs["messages"].select(
        F.lit(deliveries.MESSAGE).alias("kind"),
        "channel",
        "author",
        "sequence",
        F.when(F.col("recorded"), F.col("time")).alias("time"),
    )
    rows = rows.select(grid.cell().alias("bucket"), *deliveries.INPUT_COLUMNS)
    together = rows.unionByName(grid.to_all_receivers(said), allowMissingColumns=True)
    return TABLE.shaped(in_buckets(together, F.col("bucket"), grid.cells, deliveries.paired, TABLE.ddl))


TABLE = Table("deliveries", "Who got what, and when?", deliveries.COLUMNS, build, needs=("messages",))
