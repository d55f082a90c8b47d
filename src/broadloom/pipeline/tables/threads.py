"""Threads: trees of messages and replies of any depth (see `arrow/threads.py`).

One task handles all threads of a channel, because a reply may point anywhere in its channel.
"""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import threads
from broadloom.pipeline.partwise import map_by_channel
from broadloom.pipeline.table import CHANNEL, COUNT, ID, NUMBER, TEXT, TIME, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.clock_offsets import correction
from broadloom.pipeline.tables.thread_positions import MESSAGE_COLUMNS
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    clocks = correction(inputs)

    def found(messages: pa.Table) -> pa.Table:
        return threads.threads(messages, clocks)

    messages = inputs["messages"].select(*MESSAGE_COLUMNS, "run_id", "sent_time")
    return TABLE.conform(map_by_channel(messages, found, threads.THREADS))


TABLE = Table(
    name="threads",
    question="Which threads are there, how large and how deep?",
    columns=(
        CHANNEL,
        TableColumn("root_author", ID, "Author of the first message; of a cycle, of the first one on the tapes."),
        TableColumn("root_sequence", COUNT, "Sequence number of that message."),
        TableColumn("group_id", TEXT, "Group of that message."),
        TableColumn(
            "status", TEXT, "`complete`, `parent_missing` (the root replies to an unknown message) or `cycle`."
        ),
        TableColumn("message_count", COUNT, "Messages, including those that lead into a cycle."),
        TableColumn("depth", COUNT, "Replies from the root to the deepest message; null for a cycle."),
        TableColumn("participant_count", COUNT, "Members that posted; outside groups, peers."),
        TableColumn("start_time", TIME, "Time of the first message, by the reference clock."),
        TableColumn("end_time", TIME, "Time of the last message."),
        TableColumn(
            "first_reply_ms", NUMBER, "Time until another participant first replied to the root; null if never."
        ),
    ),
    build=build,
    depends_on=("messages", "clock_offsets"),
)
