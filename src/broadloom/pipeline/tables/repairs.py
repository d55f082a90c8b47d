"""How long the fabric took to be regular and connected again after each lost peer."""

import numpy as np

from broadloom.pipeline.analysis.fabric_timeline import NEVER, FabricTimeline
from broadloom.pipeline.analysis.frames import empty, from_rows
from broadloom.pipeline.table import (
    CHANNEL,
    COUNT,
    ID,
    NUMBER,
    TEXT,
    TIME,
    ChannelInputs,
    Stage,
    Table,
    TableColumn,
    schema_of,
)
from broadloom.pipeline.tables.fabric_snapshots import DEGREE
from broadloom.record.arrow_import import pa

COLUMNS = (
    CHANNEL,
    TableColumn("peer", ID, "Peer that was lost."),
    TableColumn("reason", TEXT, "`left` (gracefully) or `crashed`."),
    TableColumn("start_time", TIME, "When it began to leave, or its last sign of life."),
    TableColumn("link_count", COUNT, "Links it had at that time."),
    TableColumn("remaining_peer_count", COUNT, "Peers present without it."),
    TableColumn("component_count", COUNT, "Connected components right after the loss; 1 if still connected."),
    TableColumn("concurrent_loss_count", COUNT, "Other peers lost at the same time or before the repair was done."),
    TableColumn("end_time", TIME, "When the fabric was first regular and connected again; null if never."),
    TableColumn("duration_ms", NUMBER, "Duration of the repair."),
)
REPAIRS = schema_of(COLUMNS)


def repairs(links: pa.Table, intervals: pa.Table, *, degree: int = 0) -> pa.Table:
    """One row per lost peer of a channel, from its tables `links` and `membership_intervals`."""
    if not intervals.num_rows:
        return empty(REPAIRS)
    channel = intervals["channel"][0].as_py()
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
    return from_rows(rows, REPAIRS)


def _up_at_loss(timeline: FabricTimeline, end: np.ndarray) -> np.ndarray:
    """Which links were still up when this end of them was lost."""
    return np.asarray(
        (timeline.link_start < timeline.link_end)
        & (timeline.link_end == timeline.end[end])
        & (timeline.end[end] < NEVER)
    )


def build(inputs: ChannelInputs) -> pa.Table:
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
