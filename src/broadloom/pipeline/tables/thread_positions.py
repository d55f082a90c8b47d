"""Where does each message stand: in which conversation, and how deep? See `arrow/threads.py`."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import threads
from broadloom.pipeline.partwise import map_by_channel
from broadloom.pipeline.table import COUNT, ID, TEXT, Table, TableColumn, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAMES = (
    *("channel", "author", "sequence", "parent_author", "parent_sequence"),
    *("group", "member", "number", "parent_member", "parent_number"),
)


def build(inputs: TableInputs) -> "DataFrame":
    return TABLE.conform(
        map_by_channel(inputs["messages"].select(*NAMES), threads.thread_positions, threads.THREAD_POSITIONS)
    )


TABLE = Table(
    name="places",
    question="In which conversation does each message stand, and how deep?",
    columns=(
        TableColumn("channel", TEXT, "First digits of the channel's id."),
        TableColumn("author", ID, "Who broadcast the message."),
        TableColumn("sequence", COUNT, "The author's running number of it."),
        TableColumn("root_author", ID, "Author of the message that began the conversation; itself, if it began one."),
        TableColumn("root_sequence", COUNT, "Running number of that message."),
        TableColumn("depth", COUNT, "Responses from there to here; null in a circle."),
        TableColumn("state", TEXT, "complete; parent_missing (of the root, on all tapes); cycle (no beginning)."),
    ),
    build=build,
    depends_on=("messages",),
)
