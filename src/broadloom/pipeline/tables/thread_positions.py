"""Threads: trees of messages and replies of any depth.

Each message points to the one it replies to: by author and sequence, or in a group by member and member sequence, which
stay the same when the member reconnects. With pointer jumping (each message points to what its parent points to) every
message finds its root in log2(depth) rounds: 17 for a depth of 100,000. All in arrays, without walking any chain.

A message whose parent is on no tape is the root of what is known, and its thread is marked `parent_missing`. Messages
that reply to each other in a cycle have no root; their thread is named after the first message of the cycle, has no
depth, and is marked `cycle`.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column

COMPLETE, PARENT_MISSING, CYCLE = "complete", "parent_missing", "cycle"
_STATUSES = (COMPLETE, PARENT_MISSING, CYCLE)

MESSAGE_COLUMNS = [
    *("channel", "author", "sequence", "parent_author", "parent_sequence"),
    *("group_id", "member", "member_sequence", "parent_member", "parent_member_sequence"),
]

COLUMNS = (
    CHANNEL,
    column("author", "Author of the message."),
    column("sequence", "Sequence number of the message."),
    column("root_author", "Author of the first message of the thread."),
    column("root_sequence", "Sequence number of that message."),
    column("depth", "Replies between the two; null in a cycle."),
    column("status", "`complete`, `parent_missing` (the root replies to an unknown message) or `cycle`."),
)

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def thread_positions(messages: pl.DataFrame) -> pl.DataFrame:
    """Root and depth of each message of a channel.

    Columns: channel, author, sequence, parent_author, parent_sequence, group_id, member, member_sequence,
    parent_member, parent_member_sequence.
    """
    root, depth, status = find_roots(messages)
    names = messages.select("channel", "author", "sequence")
    positions = names.with_columns(
        root_author=names["author"].gather(root),
        root_sequence=names["sequence"].gather(root),
        depth=pl.Series(depth).replace(-1, None),
        status=status_names(status),
    )
    return conform(positions, COLUMNS)


def status_names(status: npt.NDArray[np.int8]) -> pl.Series:
    return pl.Series(_STATUSES, dtype=pl.String).gather(pl.Series(status))


def _parents(frame: pl.DataFrame) -> tuple[Ints, Flags, Flags]:
    """For each message: the row of its parent (its own if none is known), whether it is a root, and whether its parent
    is missing."""
    rows = frame.height
    parent = np.arange(rows, dtype=np.int64)
    is_root = np.ones(rows, dtype=bool)
    is_orphan = np.zeros(rows, dtype=bool)
    for own, parent_columns in _PARENT_KEYS:
        replies = frame.select(**parent_columns).with_row_index("reply_row").drop_nulls()
        if replies.is_empty():
            continue
        found = replies.join(_index_by(frame, own), on=list(own), how="left")
        reply_row, parent_row = found["reply_row"].to_numpy(), found["parent_row"].fill_null(rows).to_numpy()
        is_known = parent_row < rows
        parent[reply_row[is_known]] = parent_row[is_known]
        is_root[reply_row[is_known]] = False
        is_orphan[reply_row[~is_known]] = True
    return parent, is_root, is_orphan


def _index_by(frame: pl.DataFrame, own: dict[str, str]) -> pl.DataFrame:
    """The row of each message by these columns of its own."""
    if own == _BY_PEER:
        return frame.select(**own).with_row_index("parent_row")
    # A hostile member may reuse a member sequence: it stays with the first author and sequence.
    named = frame.select("author", "sequence", **own).with_row_index("parent_row").drop_nulls()
    return named.sort("author", "sequence").unique(list(own), keep="first").select("parent_row", *own)


_BY_PEER = {"sender_key": "author", "sequence_key": "sequence"}
_PARENT_KEYS: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
    (_BY_PEER, {"sender_key": "parent_author", "sequence_key": "parent_sequence"}),
    (
        {"group_key": "group_id", "sender_key": "member", "sequence_key": "member_sequence"},
        {"group_key": "group_id", "sender_key": "parent_member", "sequence_key": "parent_member_sequence"},
    ),
)
"""Columns that identify a message, and columns by which a reply refers to it."""


def find_roots(frame: pl.DataFrame) -> tuple[Ints, Ints, npt.NDArray[np.int8]]:
    """Root, depth and status (index into `_STATUSES`) of each message."""
    parent, is_root, is_orphan = _parents(frame)
    pointer = parent.copy()
    depth = (~is_root).astype(np.int64)
    moving = np.flatnonzero(~is_root[pointer])
    for _ in range(len(parent).bit_length()):
        if not len(moving):
            break
        # Both are read before either is written: a message may point to another that moves in the same round.
        next_pointer, next_depth = pointer[pointer[moving]], depth[moving] + depth[pointer[moving]]
        pointer[moving], depth[moving] = next_pointer, next_depth
        moving = moving[~is_root[next_pointer]]
    status = np.where(is_orphan[pointer], 1, 0).astype(np.int8)
    if len(moving):
        pointer[moving] = _first_of_cycle(parent, pointer[moving])
        depth[moving] = -1
        status[moving] = 2
    return pointer, depth, status


def _first_of_cycle(parent: Ints, landed: Ints) -> Ints:
    """The lowest row of the cycle in which each message landed.

    After more jumps than there are messages, all that still move are in a cycle; and the messages of a cycle have
    landed on each other, so that all of them are among these.
    """
    members = np.unique(landed)
    position = np.searchsorted(members, parent[members])
    lowest = members.copy()
    for _ in range(len(members).bit_length()):
        lowest = np.minimum(lowest, lowest[position])
        position = position[position]
    return np.asarray(lowest[np.searchsorted(members, landed)])


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return thread_positions(inputs["messages"].select(MESSAGE_COLUMNS))


TABLE = Table(
    "thread_positions",
    "Where in which thread is each message?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("messages",),
)
