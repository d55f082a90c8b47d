"""How long the fabric took to be regular and whole again after each loss of a peer."""

import numpy as np

from weft.pipeline.arrow.frames import MICROSECONDS_PER_S
from weft.pipeline.arrow.timeline import NEVER, Timeline
from weft.record.arrow import pa

_TIME = pa.timestamp("us", tz="UTC")

REPAIRS = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("peer", pa.string()),
        pa.field("how", pa.string()),
        pa.field("lost_at", _TIME),
        pa.field("links", pa.int64()),
        pa.field("peers_after", pa.int64()),
        pa.field("components_after", pa.int64()),
        pa.field("lost_meanwhile", pa.int64()),
        pa.field("repaired_at", _TIME),
        pa.field("repair_s", pa.float64()),
    ]
)


def repairs(links: pa.Table, lives: pa.Table, *, degree: int = 0) -> pa.Table:
    """One row a peer that was lost, of one channel, from its tables `links` and `lives`."""
    if not lives.num_rows:
        return REPAIRS.empty_table()
    channel = lives["channel"][0].as_py()
    line = Timeline(links, lives, degree)
    lost = np.flatnonzero(line.gone < NEVER)
    lost = lost[np.argsort(line.gone[lost], kind="stable")]
    held = np.bincount(line.a[_at_loss(line, line.a)], minlength=len(line.names))
    held += np.bincount(line.b[_at_loss(line, line.b)], minlength=len(line.names))
    regular_at = line.times[line.is_regular]
    parts: dict[int, int] = {}

    def parts_at(time: int) -> int:
        if time not in parts:
            parts[time] = line.parts(time)
        return parts[time]

    rows = []
    for peer in lost.tolist():
        lost_at = int(line.gone[peer])
        place = int(np.searchsorted(regular_at, lost_at))
        while place < len(regular_at) and parts_at(int(regular_at[place])) > 1:
            place += 1
        repaired_at = int(regular_at[place]) if place < len(regular_at) else None
        until = repaired_at if repaired_at is not None else int(NEVER)
        rows.append(
            {
                "channel": channel,
                "peer": line.names[peer],
                "how": line.how[peer],
                "lost_at": lost_at,
                "links": int(held[peer]),
                "peers_after": int(line.peers_at(np.array([lost_at]))[0]),
                "components_after": parts_at(lost_at),
                "lost_meanwhile": int(((line.gone >= lost_at) & (line.gone <= until) & (line.gone < NEVER)).sum()) - 1,
                "repaired_at": repaired_at,
                "repair_s": None if repaired_at is None else (repaired_at - lost_at) / MICROSECONDS_PER_S,
            }
        )
    return pa.Table.from_pylist(rows, schema=REPAIRS)


def _at_loss(line: Timeline, end: np.ndarray) -> np.ndarray:
    """Which links that end of theirs still had when it was lost."""
    return np.asarray((line.up < line.down) & (line.down == line.gone[end]) & (line.gone[end] < NEVER))
