"""Threads: trees of messages and replies of any depth (see `thread_positions.py`).

One task handles all threads of a channel, because a reply may point anywhere in its channel.
"""

import numpy as np
import polars as pl

from broadloom.pipeline.analysis.clock_correction import ClockCorrection
from broadloom.pipeline.analysis.frames import frame_us, table_us, to_ms
from broadloom.pipeline.table import (
    CHANNEL,
    COUNT,
    ID,
    NUMBER,
    TEXT,
    TIME,
    ChannelInputs,
    Stage,
    Table,
    TableColumn,
    schema_of,
)
from broadloom.pipeline.tables.thread_positions import MESSAGE_COLUMNS, find_roots, status_names
from broadloom.record.arrow_import import pa

COLUMNS = (
    CHANNEL,
    TableColumn("root_author", ID, "Author of the first message; of a cycle, of the first one on the tapes."),
    TableColumn("root_sequence", COUNT, "Sequence number of that message."),
    TableColumn("group_id", TEXT, "Group of that message."),
    TableColumn("status", TEXT, "`complete`, `parent_missing` (the root replies to an unknown message) or `cycle`."),
    TableColumn("message_count", COUNT, "Messages, including those that lead into a cycle."),
    TableColumn("depth", COUNT, "Replies from the root to the deepest message; null for a cycle."),
    TableColumn("participant_count", COUNT, "Members that posted; outside groups, peers."),
    TableColumn("start_time", TIME, "Time of the first message, by the reference clock."),
    TableColumn("end_time", TIME, "Time of the last message."),
    TableColumn("first_reply_ms", NUMBER, "Time until another participant first replied to the root; null if never."),
)
THREADS = schema_of(COLUMNS)


def threads(messages: pa.Table, correction: ClockCorrection) -> pa.Table:
    """All threads of a channel. Columns as for `thread_positions`, plus run_id (null if unknown) and sent_time.

    A message without replies is a thread only if it is in a group.
    """
    frame = correction.apply(frame_us(messages), "run_id", "sent_time")
    root, depth, status = find_roots(frame)
    participant = frame["member"].fill_null(frame["author"]).cast(pl.Categorical).to_physical().to_numpy()
    is_grouped = frame["group_id"].is_not_null().to_numpy()
    size = np.bincount(root, minlength=len(root))
    # In many channels most messages are not part of a thread: they are left out before any counting.
    kept = (size[root] > 1) | is_grouped | (status != 0)
    part = pl.DataFrame(
        {"root": root[kept], "depth": depth[kept], "status": status[kept], "participant": participant[kept]}
    ).with_columns(
        sent_time=frame["sent_time"].filter(pl.Series(kept)),
        root_time=frame["sent_time"].gather(root[kept]),
        by_root_author=pl.Series(participant[kept] == participant[root[kept]]),
    )
    is_first_reply = (pl.col("depth") == 1) & ~pl.col("by_root_author")
    found = part.group_by("root").agg(
        status=pl.col("status").max(),
        message_count=pl.len().cast(pl.Int64),
        depth=pl.col("depth").max(),
        participant_count=pl.col("participant").n_unique().cast(pl.Int64),
        start_time=pl.col("sent_time").min(),
        end_time=pl.col("sent_time").max(),
        first_reply_ms=to_ms((pl.col("sent_time") - pl.col("root_time")).filter(is_first_reply).min()),
    )
    first = frame.select("channel", "author", "sequence", "group_id")[found["root"].to_numpy()]
    found = found.with_columns(
        channel=first["channel"],
        root_author=first["author"],
        root_sequence=first["sequence"],
        group_id=first["group_id"],
        depth=pl.col("depth").replace(-1, None),
        status=status_names(found["status"].to_numpy()),
    )
    return table_us(found.sort("start_time", "root_author", "root_sequence"), THREADS)


def build(inputs: ChannelInputs) -> pa.Table:
    return threads(inputs["messages"].select([*MESSAGE_COLUMNS, "run_id", "sent_time"]), inputs.clocks)


TABLE = Table(
    "threads",
    "Which threads are there, how large and how deep?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("messages", "clock_offsets"),
)
