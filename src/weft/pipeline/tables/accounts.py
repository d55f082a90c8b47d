"""What was each member owed of each author, and did it get it? One row an author and member."""

from typing import TYPE_CHECKING

from weft.pipeline.arrow import accounts
from weft.pipeline.buckets import bucket_count, in_buckets
from weft.pipeline.grid import Grid
from weft.pipeline.table import Inputs, Setting, Table
from weft.pipeline.tables.members import SETTLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CLOCK = Setting(
    "clock_s", 0.5, "How far the clocks of two machines may differ: who was first within that is left open."
)


def build(inputs: Inputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    had = inputs["deliveries"].select(*accounts.DELIVERY_COLUMNS)
    grid = Grid.of(bucket_count(had, inputs.rows // 2))
    members = inputs["members"].withColumn("column", grid.column("peer")).toArrow()
    settle_s, clock_s = float(inputs.settings[SETTLE.name]), float(inputs.settings[CLOCK.name])
    limits = accounts.limits(_authors(inputs).toArrow(), _held(inputs).toArrow(), members, settle_s)
    ground = accounts.Ground(members, limits, _gaps(inputs).toArrow(), settle_s, clock_s)
    said = grid.to_all_receivers(inputs["messages"].select(*accounts.MESSAGE_COLUMNS))
    together = had.withColumn("bucket", grid.cell()).unionByName(said, allowMissingColumns=True)
    together = together.withColumn("column", F.col("bucket") % grid.receivers)
    found = in_buckets(together, F.col("bucket"), grid.cells, lambda rows: accounts.accounts(rows, ground), TABLE.ddl)
    return TABLE.shaped(found)


def _authors(inputs: Inputs) -> "DataFrame":
    """When each author noted its last message."""
    from pyspark.sql import functions as F  # noqa: N812

    noted = F.max(F.when(F.col("recorded"), F.col("time")))
    return inputs["messages"].groupBy("channel", "author").agg(noted.alias("last"))


def _held(inputs: Inputs) -> "DataFrame":
    """The last message of each author that a present member has, or was told of."""
    from pyspark.sql import functions as F  # noqa: N812

    present = inputs["members"].where("ending = 'present'").select("channel", F.col("peer").alias("receiver"))
    held = inputs["deliveries"].join(F.broadcast(present), ["channel", "receiver"], "left_semi")
    held = held.where("copies > 0 OR missed IS NOT NULL")
    return held.groupBy("channel", "author").agg(F.max("sequence").alias("held"))


def _gaps(inputs: Inputs) -> "DataFrame":
    """When rows of which runs are lacking; null stands for any time."""
    from pyspark.sql import functions as F  # noqa: N812

    told = inputs.events.where("kind = 'gap'").select(
        "channel", "run", F.col("time").alias("begin"), F.col("until").alias("end")
    )
    aside = inputs["quarantine"].where("lacking").select("channel", "run")
    return told.unionByName(aside, allowMissingColumns=True)


TABLE = Table(
    "accounts",
    "What was each member owed of each author, and did it get it?",
    accounts.COLUMNS,
    build,
    needs=("quarantine", "messages", "deliveries", "members"),
    settings=(SETTLE, CLOCK),
)
