"""Where does each message stand: in which conversation, and how deep? See `arrow/threads.py`."""

from typing import TYPE_CHECKING

from weft.pipeline.arrow import threads
from weft.pipeline.partwise import by_channel
from weft.pipeline.table import COUNT, ID, TEXT, Column, Inputs, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAMES = (
    *("channel", "author", "sequence", "parent_author", "parent_sequence"),
    *("group", "member", "number", "parent_member", "parent_number"),
)


def build(inputs: Inputs) -> "DataFrame":
    return TABLE.shaped(by_channel(inputs["messages"].select(*NAMES), threads.places, threads.PLACES))


TABLE = Table(
    name="places",
    question="In which conversation does each message stand, and how deep?",
    columns=(
        Column("channel", TEXT, "First digits of the channel's id."),
        Column("author", ID, "Who broadcast the message."),
        Column("sequence", COUNT, "The author's running number of it."),
        Column("root_author", ID, "Author of the message that began the conversation; itself, if it began one."),
        Column("root_sequence", COUNT, "Running number of that message."),
        Column("depth", COUNT, "Responses from there to here; null in a circle."),
        Column("state", TEXT, "whole; parent missing (of the root, on all tapes); circle (no beginning)."),
    ),
    build=build,
    needs=("messages",),
)
