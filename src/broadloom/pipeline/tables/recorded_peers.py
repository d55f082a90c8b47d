"""Who was there, from when to when, and how did it end?"""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import recorded_peers
from broadloom.pipeline.table import Table, TableInputs, TableSetting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SETTLE = TableSetting(
    "settle_s", 10.0, "A member that was there for so long after a message was sent, in peace, must have it by then."
)


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    marks = (
        inputs.events.where(F.col("kind").isin(*recorded_peers.MEMBERSHIP_KINDS))
        .select(*recorded_peers.MEMBERSHIP_COLUMNS)
        .toArrow()
    )
    # Gap rows have no observer: they count for the end of their run.
    spans = inputs.events.groupBy("channel", "observer", "run").agg(
        F.max("time").alias("last"), F.max("ordinal").alias("last_ordinal")
    )
    lacking = inputs["quarantine"].select("channel", "run", "lacking").toArrow()
    found = recorded_peers.recorded_peers(marks, spans.toArrow(), lacking, float(inputs.settings["settle_s"]))
    return TABLE.conform(inputs.spark.createDataFrame(found, TABLE.ddl))


TABLE = Table(
    "members",
    "Who was there, from when to when, and how did it end?",
    recorded_peers.COLUMNS,
    build,
    depends_on=("quarantine",),
    settings=(SETTLE,),
)
