"""Snapshots of a channel's fabric: after each batch of changes, and right after each lost peer.

Changes that follow each other closely are one batch: a join is a dozen changes within a moment, and the states between
them are of no interest. On a long tape the batches grow until there are at most `SNAPSHOTS_MAX`. Losses are never left
out: their snapshot shows the fabric without the peer, before any repair.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from broadloom.pipeline.analysis.fabric_timeline import NEVER, FabricTimeline
from broadloom.pipeline.analysis.frames import MICROSECONDS_PER_S, empty, frame
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, TableSetting, column, schema_of
from broadloom.record.arrow_import import pa
from broadloom.topology import is_regular

DEGREE = TableSetting("degree", 0, "Links per peer; 0: the most links that any peer recorded at once.")
SNAPSHOT_INTERVAL = TableSetting(
    "snapshot_interval_s", 1.0, "Changes of the fabric within this time make one snapshot."
)

COLUMNS = (
    CHANNEL,
    column("snapshot_time", "Time of the snapshot; it includes all changes up to and at this time."),
    column("reason", "`peer_lost` (a peer left or crashed at this time) or `changed`."),
    column("peer_count", "Peers present."),
    column("unrecorded_count", "Present peers without a tape, known from their neighbors only."),
    column("link_count", "Links that both ends have."),
    column("degree", "Links that each peer should have."),
    column("degree_histogram", "Number of peers for each number of links.", pa.map_(pa.int64(), pa.int64())),
    column("is_regular", "Whether all recorded peers have `degree` links (one may be short of one if odd)."),
    column("component_count", "Connected components; 1 if the fabric is connected."),
    column("diameter", "Links between the two most distant peers; null unless connected."),
    column("distance_mean", "Mean number of links between two peers; null unless connected."),
    column("is_exact", "Whether distances are exact; if not, the diameter is a lower bound."),
)

SNAPSHOT_INTERVAL_US = 1_000_000
"""Changes within this time are one batch."""

SNAPSHOTS_MAX = 1_000
"""Per channel, not counting those after losses."""


Ints = npt.NDArray[np.int64]


def fabric_snapshots(
    links: pl.DataFrame, intervals: pl.DataFrame, *, degree: int = 0, interval_us: int = SNAPSHOT_INTERVAL_US
) -> pl.DataFrame:
    """Snapshots of one channel from its tables `links` and `membership_intervals`."""
    if not intervals.height:
        return frame(empty(schema_of(COLUMNS)))
    channel = intervals["channel"][0]
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
    return frame(pa.Table.from_pylist(rows, schema=schema_of(COLUMNS)))


def snapshot_times(times: Ints, interval_us: int, snapshots_max: int = SNAPSHOTS_MAX) -> Ints:
    """The last change of each batch."""
    while True:
        batch = times // interval_us
        last = times[np.append(np.flatnonzero(np.diff(batch)), len(times) - 1)] if len(times) else times
        if len(last) <= snapshots_max:
            return last
        interval_us *= 2


def build(inputs: ChannelInputs) -> pl.DataFrame:
    interval_us = max(int(float(inputs.settings[SNAPSHOT_INTERVAL.name]) * MICROSECONDS_PER_S), 1)
    degree = int(inputs.settings[DEGREE.name])
    return fabric_snapshots(inputs["links"], inputs["membership_intervals"], degree=degree, interval_us=interval_us)


TABLE = Table(
    "fabric_snapshots",
    "What did the fabric look like over time?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("membership_intervals", "links"),
    settings=(DEGREE, SNAPSHOT_INTERVAL),
)
