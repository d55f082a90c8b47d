"""Messages and authors per group of a channel. Messages outside groups are one row with a null group."""

from typing import TYPE_CHECKING

from broadloom.pipeline.table import Table, TableInputs
from broadloom.pipeline.tables.topic_stats import GROUP_COLUMNS, message_stats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    messages = inputs["messages"]
    topics = messages.groupBy("channel", "group_id").agg(F.countDistinct("topic").alias("topic_count"))
    # A null group is a group of its own here, so an ordinary join would lose it.
    same_channel = F.col("stats.channel") == F.col("topics.channel")
    same = same_channel & F.col("stats.group_id").eqNullSafe(F.col("topics.group_id"))
    joined = message_stats(messages, "group_id").alias("stats").join(topics.alias("topics"), same)
    columns = joined.select("stats.*", "topics.topic_count")
    return TABLE.conform(columns).orderBy("channel", F.desc("message_count"), "group_id")


TABLE = Table("group_stats", "How much was sent in each group?", GROUP_COLUMNS, build, depends_on=("messages",))
