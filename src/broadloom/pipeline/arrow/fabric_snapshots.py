"""Snapshots of a channel's fabric: after each batch of changes, and right after each lost peer.

Changes that follow each other closely are one batch: a join is a dozen changes within a moment, and the states between
them are of no interest. On a long tape the batches grow until there are at most `SNAPSHOTS_MAX`. Losses are never left
out: their snapshot shows the fabric without the peer, before any repair.
"""

import numpy as np
import numpy.typing as npt

from broadloom.pipeline.arrow.fabric_timeline import NEVER, FabricTimeline
from broadloom.record.arrow_import import pa
from broadloom.topology import is_regular

SNAPSHOT_INTERVAL_US = 1_000_000
"""Changes within this time are one batch."""

SNAPSHOTS_MAX = 1_000
"""Per channel, not counting those after losses."""

FABRIC_SNAPSHOTS = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("snapshot_time", pa.timestamp("us", tz="UTC")),
        pa.field("reason", pa.string()),
        pa.field("peer_count", pa.int64()),
        pa.field("unrecorded_count", pa.int64()),
        pa.field("link_count", pa.int64()),
        pa.field("degree", pa.int64()),
        pa.field("degree_histogram", pa.map_(pa.int64(), pa.int64())),
        pa.field("is_regular", pa.bool_()),
        pa.field("component_count", pa.int64()),
        pa.field("diameter", pa.int64()),
        pa.field("distance_mean", pa.float64()),
        pa.field("is_exact", pa.bool_()),
    ]
)

Ints = npt.NDArray[np.int64]


def fabric_snapshots(
    links: pa.Table, intervals: pa.Table, *, degree: int = 0, interval_us: int = SNAPSHOT_INTERVAL_US
) -> pa.Table:
    """Snapshots of one channel from its tables `links` and `membership_intervals`."""
    if not intervals.num_rows:
        return FABRIC_SNAPSHOTS.empty_table()
    channel = intervals["channel"][0].as_py()
    timeline = FabricTimeline(links, intervals, degree)
    losses = np.unique(timeline.end[timeline.end < NEVER])
    times = np.union1d(snapshot_times(timeline.times, interval_us), losses)
    rows = []
    for time in times.tolist():
        topology = timeline.topology(time)
        recorded = timeline.recorded_degrees(time)
        rows.append(
            {
                "channel": channel,
                "snapshot_time": time,
                "reason": "peer_lost" if time in losses else "changed",
                "peer_count": topology.peers,
                "unrecorded_count": topology.peers - sum(recorded.values()),
                "link_count": topology.links,
                "degree": timeline.degree,
                "degree_histogram": list(topology.degrees.items()),
                "is_regular": is_regular(recorded, topology.peers, timeline.degree),
                "component_count": topology.components,
                "diameter": topology.diameter,
                "distance_mean": topology.mean_distance,
                "is_exact": topology.is_exact,
            }
        )
    return pa.Table.from_pylist(rows, schema=FABRIC_SNAPSHOTS)


def snapshot_times(times: Ints, interval_us: int, snapshots_max: int = SNAPSHOTS_MAX) -> Ints:
    """The last change of each batch."""
    while True:
        batch = times // interval_us
        last = times[np.append(np.flatnonzero(np.diff(batch)), len(times) - 1)] if len(times) else times
        if len(last) <= snapshots_max:
            return last
        interval_us *= 2
