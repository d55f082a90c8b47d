"""Who was there, from when to when, and how did it end?"""

from typing import TYPE_CHECKING

from weft.pipeline.arrow import members
from weft.pipeline.table import Inputs, Setting, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SETTLE = Setting(
    "settle_s", 10.0, "A member that was there for so long after a message was sent, in peace, must have it by then."
)


def build(inputs: Inputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    marks = inputs.events.where(F.col("kind").isin(*members.MARKS)).select(*members.MARK_COLUMNS).toArrow()
    # Gap rows have no observer: they count for the end of their run.
    spans = inputs.events.groupBy("channel", "observer", "run").agg(
        F.max("time").alias("last"), F.max("ordinal").alias("last_ordinal")
    )
    lacking = inputs["quarantine"].select("channel", "run", "lacking").toArrow()
    found = members.members(marks, spans.toArrow(), lacking, float(inputs.settings["settle_s"]))
    return TABLE.shaped(inputs.spark.createDataFrame(found, TABLE.ddl))


TABLE = Table(
    "members",
    "Who was there, from when to when, and how did it end?",
    members.COLUMNS,
    build,
    needs=("quarantine",),
    settings=(SETTLE,),
)
