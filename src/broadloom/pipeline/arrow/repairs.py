"""How long the fabric took to be regular and whole again after each loss of a peer."""

import numpy as np

from broadloom.pipeline.arrow.fabric_timeline import NEVER, FabricTimeline
from broadloom.pipeline.arrow.frames import MICROSECONDS_PER_S
from broadloom.record.arrow_import import pa

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


def repairs(links: pa.Table, intervals: pa.Table, *, degree: int = 0) -> pa.Table:
    """One row a peer that was lost, of one channel, from its tables `links` and `lives`."""
    if not intervals.num_rows:
        return REPAIRS.empty_table()
    channel = intervals["channel"][0].as_py()
    line = FabricTimeline(links, intervals, degree)
    lost = np.flatnonzero(line.end < NEVER)
    lost = lost[np.argsort(line.end[lost], kind="stable")]
    held = np.bincount(line.a[_at_loss(line, line.a)], minlength=len(line.names))
    held += np.bincount(line.b[_at_loss(line, line.b)], minlength=len(line.names))
    regular_at = line.times[line.is_regular]
    parts: dict[int, int] = {}

    def parts_at(time: int) -> int:
        if time not in parts:
            parts[time] = line.component_count(time)
        return parts[time]

    rows = []
    for peer in lost.tolist():
        lost_at = int(line.end[peer])
        place = int(np.searchsorted(regular_at, lost_at))
        while place < len(regular_at) and parts_at(int(regular_at[place])) > 1:
            place += 1
        repaired_at = int(regular_at[place]) if place < len(regular_at) else None
        until = repaired_at if repaired_at is not None else int(NEVER)
        rows.append(
            {
                "channel": channel,
                "peer": line.names[peer],
                "how": line.end_status[peer],
                "lost_at": lost_at,
                "links": int(held[peer]),
                "peers_after": int(line.peer_counts(np.array([lost_at]))[0]),
                "components_after": parts_at(lost_at),
                "lost_meanwhile": int(((line.end >= lost_at) & (line.end <= until) & (line.end < NEVER)).sum()) - 1,
                "repaired_at": repaired_at,
                "repair_s": None if repaired_at is None else (repaired_at - lost_at) / MICROSECONDS_PER_S,
            }
        )
    return pa.Table.from_pylist(rows, schema=REPAIRS)


def _at_loss(timeline: FabricTimeline, end: np.ndarray) -> np.ndarray:
    """Which links that end of theirs still had when it was lost."""
    return np.asarray(
        (timeline.link_start < timeline.link_end)
        & (timeline.link_end == timeline.end[end])
        & (timeline.end[end] < NEVER)
    )
