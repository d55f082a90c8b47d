"""Snapshots of a channel's fabric over time: after each batch of changes, and right after each loss.

Changes that follow each other closely are one batch: a join is a dozen of them within a moment, and what lies between
is nobody's question. On a long tape the batches grow until there are no more than `SNAPSHOTS_MAX`. Losses are never
left out: what the fabric looked like with the peer gone and nothing repaired yet.
"""

import numpy as np
import numpy.typing as npt

from weft.pipeline.arrow.graph import is_regular
from weft.pipeline.arrow.timeline import NEVER, Timeline
from weft.record.arrow import pa

STEP_US = 1_000_000
"""Changes within it are one batch."""

SNAPSHOTS_MAX = 1_000
"""Of a channel, beside those after losses."""

FABRIC = pa.schema(
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


def fabric(links: pa.Table, lives: pa.Table, *, degree: int = 0, step_us: int = STEP_US) -> pa.Table:
    """Snapshots of one channel from its tables `links` and `lives`."""
    if not lives.num_rows:
        return FABRIC.empty_table()
    channel = lives["channel"][0].as_py()
    line = Timeline(links, lives, degree)
    losses = np.unique(line.gone[line.gone < NEVER])
    moments = np.union1d(snapshot_times(line.times, step_us), losses)
    rows = []
    for time in moments.tolist():
        shape = line.shape(time)
        known = line.degrees_recorded(time)
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
    return pa.Table.from_pylist(rows, schema=FABRIC)


def snapshot_times(times: Ints, step_us: int, most: int = SNAPSHOTS_MAX) -> Ints:
    """The last change of each batch."""
    while True:
        batch = times // step_us
        last = times[np.append(np.flatnonzero(np.diff(batch)), len(times) - 1)] if len(times) else times
        if len(last) <= most:
            return last
        step_us *= 2
