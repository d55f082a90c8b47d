"""The thread of each message and its depth in it (see `arrow/threads.py`)."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import threads
from broadloom.pipeline.partwise import map_by_channel
from broadloom.pipeline.table import CHANNEL, COUNT, ID, TEXT, Table, TableColumn, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MESSAGE_COLUMNS = (
    *("channel", "author", "sequence", "parent_author", "parent_sequence"),
    *("group_id", "member", "member_sequence", "parent_member", "parent_member_sequence"),
)


def build(inputs: TableInputs) -> "DataFrame":
    messages = inputs["messages"].select(*MESSAGE_COLUMNS)
    return TABLE.conform(map_by_channel(messages, threads.thread_positions, threads.THREAD_POSITIONS))


TABLE = Table(
    name="thread_positions",
    question="Where in which thread is each message?",
    columns=(
        CHANNEL,
        TableColumn("author", ID, "Author of the message."),
        TableColumn("sequence", COUNT, "Sequence number of the message."),
        TableColumn("root_author", ID, "Author of the first message of the thread."),
        TableColumn("root_sequence", COUNT, "Sequence number of that message."),
        TableColumn("depth", COUNT, "Replies between the two; null in a cycle."),
        TableColumn(
            "status", TEXT, "`complete`, `parent_missing` (the root replies to an unknown message) or `cycle`."
        ),
    ),
    build=build,
    depends_on=("messages",),
)
