"""Threads: trees of messages and replies of any depth (see `thread_positions.py`).

One task handles all threads of a channel, because a reply may point anywhere in its channel.
"""

import numpy as np
import polars as pl

from broadloom.pipeline.analysis.clock_correction import ClockCorrection
from broadloom.pipeline.analysis.frames import conform, in_us, to_ms
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column
from broadloom.pipeline.tables.thread_positions import MESSAGE_COLUMNS, find_roots, status_names

COLUMNS = (
    CHANNEL,
    column("root_author", "Author of the first message; of a cycle, of the first one on the tapes."),
    column("root_sequence", "Sequence number of that message."),
    column("group_id", "Group of that message."),
    column("status", "`complete`, `parent_missing` (the root replies to an unknown message) or `cycle`."),
    column("message_count", "Messages, including those that lead into a cycle."),
    column("depth", "Replies from the root to the deepest message; null for a cycle."),
    column("participant_count", "Members that posted; outside groups, peers."),
    column("start_time", "Time of the first message, by the reference clock."),
    column("end_time", "Time of the last message."),
    column("first_reply_ms", "Time until another participant first replied to the root; null if never."),
)


def threads(messages: pl.DataFrame, correction: ClockCorrection) -> pl.DataFrame:
    """All threads of a channel. Columns as for `thread_positions`, plus run_id (null if unknown) and sent_time.

    A message without replies is a thread only if it is in a group.
    """
    frame = correction.apply(in_us(messages), "run_id", "sent_time")
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
    return conform(found.sort("start_time", "root_author", "root_sequence"), COLUMNS)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return threads(inputs["messages"].select([*MESSAGE_COLUMNS, "run_id", "sent_time"]), inputs.clocks)


TABLE = Table(
    "threads",
    "Which threads are there, how large and how deep?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("messages", "clock_offsets"),
)
