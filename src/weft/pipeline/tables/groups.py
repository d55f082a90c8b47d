"""One row a group of a channel: how much was said in it and by how many. The whole channel is a row without group."""

from typing import TYPE_CHECKING

from weft.pipeline.table import Inputs, Table
from weft.pipeline.tables.topics import GROUPS, said_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: Inputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    messages = inputs["messages"]
    topics = messages.groupBy("channel", "`group`").agg(F.countDistinct("topic").alias("topics"))
    # A group may be null, and null is a group here.
    same = (F.col("said.channel") == F.col("topics.channel")) & F.col("said.group").eqNullSafe(F.col("topics.group"))
    together = said_by(messages, "group").alias("said").join(topics.alias("topics"), same)
    columns = together.select("said.*", F.col("topics.topics").alias("topics"))
    return TABLE.shaped(columns).orderBy("channel", F.desc("messages"), "`group`")


TABLE = Table("groups", "Which groups are there, and how lively are they?", GROUPS, build, needs=("messages",))
