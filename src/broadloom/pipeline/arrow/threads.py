"""Conversations: messages that respond to messages, as trees of any depth.

Each message points to the one that it responds to: by author and sequence, or in a group by member and number, which
are the same whichever peer the member was. By pointing to what that one points to, again and again (pointer jumping),
every message finds its root in as many rounds as its depth has binary digits: 17 for 100,000. All in arrays, without a
walk along any chain.

The rule: nothing hangs and nothing is hidden. A message whose parent is on no tape is the root of what is known, and
its conversation says so. Messages that respond to each other in a circle have no root; their conversation has the name
of the first message of the circle, no depth, and says so.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from broadloom.pipeline.arrow.clock_correction import ClockCorrection
from broadloom.pipeline.arrow.frames import MICROSECONDS_PER_S, to_arrow, to_polars
from broadloom.record.arrow_import import pa

_TIME = pa.timestamp("us", tz="UTC")

COMPLETE, PARENT_MISSING, CYCLE = "complete", "parent_missing", "cycle"

THREAD_POSITIONS = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("author", pa.string()),
        pa.field("sequence", pa.int64()),
        pa.field("root_author", pa.string()),
        pa.field("root_sequence", pa.int64()),
        pa.field("depth", pa.int64()),
        pa.field("state", pa.string()),
    ]
)

THREADS = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("root_author", pa.string()),
        pa.field("root_sequence", pa.int64()),
        pa.field("group", pa.string()),
        pa.field("state", pa.string()),
        pa.field("messages", pa.int64()),
        pa.field("depth", pa.int64()),
        pa.field("participants", pa.int64()),
        pa.field("began", _TIME),
        pa.field("ended", _TIME),
        pa.field("first_answer_s", pa.float64()),
    ]
)

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def thread_positions(messages: pa.Table) -> pa.Table:
    """Root and depth of each message of a channel.

    Columns: channel, author, sequence, parent_author, parent_sequence, group, member, number, parent_member,
    parent_number.
    """
    frame = to_polars(messages)
    root, depth, state = _find_roots(_parents(frame))
    names = frame.select("channel", "author", "sequence")
    told = names.with_columns(
        root_author=names["author"].gather(root),
        root_sequence=names["sequence"].gather(root),
        depth=pl.Series(depth).replace(-1, None),
        state=_status_names(state),
    )
    return to_arrow(told, THREAD_POSITIONS)


def threads(messages: pa.Table, correction: ClockCorrection) -> pa.Table:
    """Every conversation of a channel. Columns as for `places`, and run (null if unknown), time.

    A message that nobody answers is a conversation only if it stands in a group.
    """
    frame = correction.apply(to_polars(messages), "run", "time")
    root, depth, state = _find_roots(_parents(frame))
    speaker = frame["member"].fill_null(frame["author"])
    author = speaker.cast(pl.Categorical).to_physical().to_numpy()
    grouped = frame["group"].is_not_null().to_numpy()
    size = np.bincount(root, minlength=len(root))
    # Most messages of many channels answer nothing and are answered by nothing: they are left out before any counting.
    kept = (size[root] > 1) | grouped | (state != 0)
    part = pl.DataFrame(
        {"root": root[kept], "depth": depth[kept], "state": state[kept], "author": author[kept]}
    ).with_columns(
        time=frame["time"].filter(pl.Series(kept)),
        said=frame["time"].gather(root[kept]),
        by_root=pl.Series(author[kept] == author[root[kept]]),
    )
    answer = (pl.col("depth") == 1) & ~pl.col("by_root")
    told = part.group_by("root").agg(
        state=pl.col("state").max(),
        messages=pl.len().cast(pl.Int64),
        depth=pl.col("depth").max(),
        participants=pl.col("author").n_unique().cast(pl.Int64),
        began=pl.col("time").min(),
        ended=pl.col("time").max(),
        first_answer_s=(pl.col("time") - pl.col("said")).filter(answer).min() / MICROSECONDS_PER_S,
    )
    first = frame.select("channel", "author", "sequence", "group")[told["root"].to_numpy()]
    told = told.with_columns(
        channel=first["channel"],
        root_author=first["author"],
        root_sequence=first["sequence"],
        group=first["group"],
        depth=pl.col("depth").replace(-1, None),
        state=_status_names(told["state"].to_numpy()),
    )
    return to_arrow(told.sort("began", "root_author", "root_sequence"), THREADS)


_STATUSES = (COMPLETE, PARENT_MISSING, CYCLE)


def _status_names(status: npt.NDArray[np.int8]) -> pl.Series:
    return pl.Series(_STATUSES, dtype=pl.String).gather(pl.Series(status))


def _parents(frame: pl.DataFrame) -> tuple[Ints, Flags, Flags]:
    """For each message the place of its parent (its own, if none is known), who has none, and who lacks one."""
    rows = frame.height
    parent = np.arange(rows, dtype=np.int64)
    is_root = np.ones(rows, dtype=bool)
    lacking = np.zeros(rows, dtype=bool)
    for own, asked_for in _PARENT_KEYS:
        asked = frame.select(**asked_for).with_row_index("mine").drop_nulls()
        if asked.is_empty():
            continue
        found = asked.join(_index_by(frame, own), on=list(own), how="left")
        mine, place = found["mine"].to_numpy(), found["place"].fill_null(rows).to_numpy()
        known = place < rows
        parent[mine[known]] = place[known]
        is_root[mine[known]] = False
        lacking[mine[~known]] = True
    return parent, is_root, lacking


def _index_by(frame: pl.DataFrame, own: dict[str, str]) -> pl.DataFrame:
    """The place of each message, by these columns of its own."""
    if own == _BY_PEER:
        return frame.select(**own).with_row_index("place")
    # In a group somebody may use a name again that was used: it stays with the first author and sequence.
    named = frame.select("author", "sequence", **own).with_row_index("place").drop_nulls()
    return named.sort("author", "sequence").unique(list(own), keep="first").select("place", *own)


_BY_PEER = {"who": "author", "which": "sequence"}
_PARENT_KEYS: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
    (_BY_PEER, {"who": "parent_author", "which": "parent_sequence"}),
    (
        {"where": "group", "who": "member", "which": "number"},
        {"where": "group", "who": "parent_member", "which": "parent_number"},
    ),
)
"""By which columns a message is named, and by which another names it."""


def _find_roots(parents: tuple[Ints, Flags, Flags]) -> tuple[Ints, Ints, npt.NDArray[np.int8]]:
    """Root, depth and state (0 whole, 1 parent missing, 2 circle) of each message."""
    parent, is_root, lacking = parents
    pointer = parent.copy()
    depth = (~is_root).astype(np.int64)
    moving = np.flatnonzero(~is_root[pointer])
    for _ in range(len(parent).bit_length()):
        if not len(moving):
            break
        # Both are read before either is written: a message may point to another that moves in the same round.
        further, farther = pointer[pointer[moving]], depth[moving] + depth[pointer[moving]]
        pointer[moving], depth[moving] = further, farther
        moving = moving[~is_root[further]]
    state = np.where(lacking[pointer], 1, 0).astype(np.int8)
    if len(moving):
        pointer[moving] = _first_of_cycle(parent, pointer[moving])
        depth[moving] = -1
        state[moving] = 2
    return pointer, depth, state


def _first_of_cycle(parent: Ints, landed: Ints) -> Ints:
    """The smallest place in the circle in which each landed.

    After more jumps than there are messages, whoever still moves has landed in its circle; and those of a circle have
    landed on each other, so that all of them are among these.
    """
    members = np.unique(landed)
    place = np.searchsorted(members, parent[members])
    smallest = members.copy()
    for _ in range(len(members).bit_length()):
        smallest = np.minimum(smallest, smallest[place])
        place = place[place]
    return np.asarray(smallest[np.searchsorted(members, landed)])
