"""How long the fabric took to be regular and connected again after each lost peer."""

import numpy as np
import polars as pl

from broadloom.pipeline.analysis.fabric_timeline import NEVER, FabricTimeline
from broadloom.pipeline.analysis.frames import from_rows
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column
from broadloom.pipeline.tables.fabric_snapshots import DEGREE

COLUMNS = (
    CHANNEL,
    column("peer", "Peer that was lost."),
    column("reason", "`left` (gracefully) or `crashed`."),
    column("start_time", "When it began to leave, or its last sign of life."),
    column("link_count", "Links it had at that time."),
    column("remaining_peer_count", "Peers present without it."),
    column("component_count", "Connected components right after the loss; 1 if still connected."),
    column("concurrent_loss_count", "Other peers lost at the same time or before the repair was done."),
    column("end_time", "When the fabric was first regular and connected again; null if never."),
    column("duration_ms", "Duration of the repair."),
)


def repairs(links: pl.DataFrame, intervals: pl.DataFrame, *, degree: int = 0) -> pl.DataFrame:
    """One row per lost peer of a channel, from its tables `links` and `membership_intervals`."""
    if not intervals.height:
        return from_rows([], COLUMNS)
    channel = intervals["channel"][0]
    timeline = FabricTimeline(links, intervals, degree)
    lost = np.flatnonzero(timeline.end < NEVER)
    lost = lost[np.argsort(timeline.end[lost], kind="stable")]
    link_counts = np.bincount(timeline.a[_up_at_loss(timeline, timeline.a)], minlength=len(timeline.names))
    link_counts += np.bincount(timeline.b[_up_at_loss(timeline, timeline.b)], minlength=len(timeline.names))
    regular_times = timeline.times[timeline.is_regular]
    component_counts: dict[int, int] = {}

    def components_at(time: int) -> int:
        if time not in component_counts:
            component_counts[time] = timeline.component_count(time)
        return component_counts[time]

    rows = []
    for peer in lost.tolist():
        start = int(timeline.end[peer])
        position = int(np.searchsorted(regular_times, start))
        while position < len(regular_times) and components_at(int(regular_times[position])) > 1:
            position += 1
        end = int(regular_times[position]) if position < len(regular_times) else None
        until = end if end is not None else int(NEVER)
        lost_meanwhile = (timeline.end >= start) & (timeline.end <= until) & (timeline.end < NEVER)
        rows.append(
            {
                "channel": channel,
                "peer": timeline.names[peer],
                "reason": timeline.end_status[peer],
                "start_time": start,
                "link_count": int(link_counts[peer]),
                "remaining_peer_count": int(timeline.peer_counts(np.array([start]))[0]),
                "component_count": components_at(start),
                "concurrent_loss_count": int(lost_meanwhile.sum()) - 1,
                "end_time": end,
                "duration_ms": None if end is None else (end - start) / 1000,
            }
        )
    return from_rows(rows, COLUMNS)


def _up_at_loss(timeline: FabricTimeline, end: np.ndarray) -> np.ndarray:
    """Which links were still up when this end of them was lost."""
    return np.asarray(
        (timeline.link_start < timeline.link_end)
        & (timeline.link_end == timeline.end[end])
        & (timeline.end[end] < NEVER)
    )


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return repairs(inputs["links"], inputs["membership_intervals"], degree=int(inputs.settings[DEGREE.name]))


TABLE = Table(
    "repairs",
    "How long did each repair take?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("membership_intervals", "links"),
    settings=(DEGREE,),
)
