"""Messages and authors per group of a channel. Messages outside groups are one row with a null group."""

from broadloom.pipeline.analysis.frames import frame, to_schema
from broadloom.pipeline.table import ChannelInputs, Stage, Table, schema_of
from broadloom.pipeline.tables.topic_stats import GROUP_COLUMNS, message_stats
from broadloom.record.arrow_import import pa


def build(inputs: ChannelInputs) -> pa.Table:
    return to_schema(message_stats(frame(inputs["messages"]), "group_id"), schema_of(GROUP_COLUMNS))


TABLE = Table(
    "group_stats", "How much was sent in each group?", GROUP_COLUMNS, Stage.CHANNEL, build, depends_on=("messages",)
)
