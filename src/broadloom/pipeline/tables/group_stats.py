"""Messages and authors per group of a channel. Messages outside groups are one row with a null group."""

import polars as pl

from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.table import ChannelInputs, Stage, Table
from broadloom.pipeline.tables.topic_stats import GROUP_COLUMNS, message_stats


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return conform(message_stats(inputs["messages"], "group_id"), GROUP_COLUMNS)


TABLE = Table(
    "group_stats", "How much was sent in each group?", GROUP_COLUMNS, Stage.CHANNEL, build, depends_on=("messages",)
)
