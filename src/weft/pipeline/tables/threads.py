"""Which conversations took place? Trees of message and response, of any depth: see `arrow/threads.py`.

The conversations of a channel are found in one task, because a response may point anywhere in its channel.
"""

from typing import TYPE_CHECKING

from weft.pipeline.arrow import threads
from weft.pipeline.partwise import by_channel
from weft.pipeline.table import COUNT, ID, NUMBER, TEXT, TIME, Column, Inputs, Table
from weft.pipeline.tables.clocks import correction
from weft.pipeline.tables.places import NAMES
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: Inputs) -> "DataFrame":
    clocks = correction(inputs)

    def told(messages: pa.Table) -> pa.Table:
        return threads.threads(messages, clocks)

    spoken = inputs["messages"].select(*NAMES, "run", "time")
    return TABLE.shaped(by_channel(spoken, told, threads.THREADS))


TABLE = Table(
    name="threads",
    question="Which conversations took place, how large and deep are they, and how soon was there an answer?",
    columns=(
        Column("channel", TEXT, "First digits of the channel's id."),
        Column("root_author", ID, "Author of the message that began it; of a circle, of its first message."),
        Column("root_sequence", COUNT, "Running number of that message."),
        Column("group", TEXT, "Group of that message."),
        Column("state", TEXT, "whole; parent missing (what came before is on no tape); circle (no beginning)."),
        Column("messages", COUNT, "Messages in it, with those that lead into a circle."),
        Column("depth", COUNT, "Responses from the first message to the deepest one; null for a circle."),
        Column("participants", COUNT, "Members that said something in it; outside groups, peers."),
        Column("began", TIME, "Time of its first message, by the reference's clock."),
        Column("ended", TIME, "Time of its last message."),
        Column(
            "first_answer_s", NUMBER, "Seconds until somebody else first responded to the root; null if nobody did."
        ),
    ),
    build=build,
    needs=("messages", "clocks"),
)
