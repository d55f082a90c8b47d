"""Snapshots of a channel's fabric over time: after each batch of changes, and right after each loss.

Changes that follow each other closely are one batch: a join is a dozen of them within a moment, and what lies between
is nobody's question. On a long tape the batches grow until there are no more than `SNAPSHOTS_MAX`. Losses are never
left out: what the fabric looked like with the peer gone and nothing repaired yet.
"""

import numpy as np
import numpy.typing as npt

from broadloom.pipeline.arrow.fabric_timeline import NEVER, FabricTimeline
from broadloom.record.arrow_import import pa
from broadloom.topology import is_regular

SNAPSHOT_INTERVAL_US = 1_000_000
"""Changes within it are one batch."""

SNAPSHOTS_MAX = 1_000
"""Of a channel, beside those after losses."""

FABRIC_SNAPSHOTS = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("reason", pa.string()),
        pa.field("peers", pa.int64()),
        pa.field("unrecorded", pa.int64()),
        pa.field("links", pa.int64()),
        pa.field("degree", pa.int64()),
        pa.field("degrees", pa.map_(pa.int64(), pa.int64())),
        pa.field("is_regular", pa.bool_()),
        pa.field("components", pa.int64()),
        pa.field("diameter", pa.int64()),
        pa.field("mean_distance", pa.float64()),
        pa.field("is_exact", pa.bool_()),
    ]
)

Ints = npt.NDArray[np.int64]


def fabric_snapshots(
    links: pa.Table, intervals: pa.Table, *, degree: int = 0, interval_us: int = SNAPSHOT_INTERVAL_US
) -> pa.Table:
    """Snapshots of one channel from its tables `links` and `lives`."""
    if not intervals.num_rows:
        return FABRIC_SNAPSHOTS.empty_table()
    channel = intervals["channel"][0].as_py()
    line = FabricTimeline(links, intervals, degree)
    losses = np.unique(line.end[line.end < NEVER])
    moments = np.union1d(snapshot_times(line.times, interval_us), losses)
    rows = []
    for time in moments.tolist():
        shape = line.topology(time)
        known = line.recorded_degrees(time)
        rows.append(
            {
                "channel": channel,
                "time": time,
                "reason": "loss" if time in losses else "change",
                "peers": shape.peers,
                "unrecorded": shape.peers - sum(known.values()),
                "links": shape.links,
                "degree": line.degree,
                "degrees": list(shape.degrees.items()),
                "is_regular": is_regular(known, shape.peers, line.degree),
                "components": shape.components,
                "diameter": shape.diameter,
                "mean_distance": shape.mean_distance,
                "is_exact": shape.is_exact,
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
