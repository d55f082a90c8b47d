"""One row a group of a channel: how much was said in it and by how many. The whole channel is a row without group."""

from typing import TYPE_CHECKING

from broadloom.pipeline.table import Table, TableInputs
from broadloom.pipeline.tables.topic_stats import GROUPS, message_stats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    messages = inputs["messages"]
    topics = messages.groupBy("channel", "`group`").agg(F.countDistinct("topic").alias("topics"))
    # A group may be null, and null is a group here.
    same = (F.col("said.channel") == F.col("topics.channel")) & F.col("said.group").eqNullSafe(F.col("topics.group"))
    together = message_stats(messages, "group").alias("said").join(topics.alias("topics"), same)
    columns = together.select("said.*", F.col("topics.topics").alias("topics"))
    return TABLE.conform(columns).orderBy("channel", F.desc("messages"), "`group`")


TABLE = Table("groups", "Which groups are there, and how lively are they?", GROUPS, build, depends_on=("messages",))
