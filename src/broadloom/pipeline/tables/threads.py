"""Which conversations took place? Trees of message and response, of any depth: see `arrow/threads.py`.

The conversations of a channel are found in one task, because a response may point anywhere in its channel.
"""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import threads
from broadloom.pipeline.partwise import map_by_channel
from broadloom.pipeline.table import COUNT, ID, NUMBER, TEXT, TIME, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.clock_offsets import correction
from broadloom.pipeline.tables.thread_positions import NAMES
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    clocks = correction(inputs)

    def told(messages: pa.Table) -> pa.Table:
        return threads.threads(messages, clocks)

    spoken = inputs["messages"].select(*NAMES, "run", "time")
    return TABLE.conform(map_by_channel(spoken, told, threads.THREADS))


TABLE = Table(
    name="threads",
    question="Which conversations took place, how large and deep are they, and how soon was there an answer?",
    columns=(
        TableColumn("channel", TEXT, "First digits of the channel's id."),
        TableColumn("root_author", ID, "Author of the message that began it; of a circle, of its first message."),
        TableColumn("root_sequence", COUNT, "Running number of that message."),
        TableColumn("group", TEXT, "Group of that message."),
        TableColumn("state", TEXT, "complete; parent_missing (what came before is on no tape); cycle (no beginning)."),
        TableColumn("messages", COUNT, "Messages in it, with those that lead into a circle."),
        TableColumn("depth", COUNT, "Responses from the first message to the deepest one; null for a circle."),
        TableColumn("participants", COUNT, "Members that said something in it; outside groups, peers."),
        TableColumn("began", TIME, "Time of its first message, by the reference's clock."),
        TableColumn("ended", TIME, "Time of its last message."),
        TableColumn(
            "first_answer_s", NUMBER, "Seconds until somebody else first responded to the root; null if nobody did."
        ),
    ),
    build=build,
    depends_on=("messages", "clocks"),
)
