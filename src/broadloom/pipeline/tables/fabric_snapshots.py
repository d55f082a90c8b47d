"""Snapshots of the fabric over time (see `arrow/fabric_snapshots.py`)."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import fabric_snapshots
from broadloom.pipeline.arrow.frames import MICROSECONDS_PER_S
from broadloom.pipeline.partwise import cogroup_by_channel
from broadloom.pipeline.table import (
    CHANNEL,
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    TIME,
    Table,
    TableColumn,
    TableInputs,
    TableSetting,
)
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEGREE = TableSetting("degree", 0, "Links per peer; 0: the most links that any peer on the tape had at once.")
SNAPSHOT_INTERVAL = TableSetting(
    "snapshot_interval_s", 1.0, "Changes of the fabric within this time make one snapshot."
)


def build(inputs: TableInputs) -> "DataFrame":
    degree = int(inputs.settings.get(DEGREE.name, DEGREE.default))
    interval_s = float(inputs.settings.get(SNAPSHOT_INTERVAL.name, SNAPSHOT_INTERVAL.default))
    interval_us = max(int(interval_s * MICROSECONDS_PER_S), 1)

    def snapshots(links: pa.Table, intervals: pa.Table) -> pa.Table:
        return fabric_snapshots.fabric_snapshots(links, intervals, degree=degree, interval_us=interval_us)

    links, intervals = inputs["links"], inputs["membership_intervals"]
    return TABLE.conform(cogroup_by_channel(links, intervals, snapshots, fabric_snapshots.FABRIC_SNAPSHOTS))


TABLE = Table(
    name="fabric_snapshots",
    question="What did the fabric look like over time?",
    columns=(
        CHANNEL,
        TableColumn("snapshot_time", TIME, "Time of the snapshot; it includes all changes up to and at this time."),
        TableColumn("reason", TEXT, "`peer_lost` (a peer left or crashed at this time) or `changed`."),
        TableColumn("peer_count", COUNT, "Peers present."),
        TableColumn("unrecorded_count", COUNT, "Present peers without a tape, known from their neighbors only."),
        TableColumn("link_count", COUNT, "Links that both ends have."),
        TableColumn("degree", COUNT, "Links that each peer should have."),
        TableColumn("degree_histogram", pa.map_(pa.int64(), pa.int64()), "Number of peers for each number of links."),
        TableColumn(
            "is_regular", FLAG, "Whether all recorded peers have `degree` links (one may be short of one if odd)."
        ),
        TableColumn("component_count", COUNT, "Connected components; 1 if the fabric is connected."),
        TableColumn("diameter", COUNT, "Links between the two most distant peers; null unless connected."),
        TableColumn("distance_mean", NUMBER, "Mean number of links between two peers; null unless connected."),
        TableColumn("is_exact", FLAG, "Whether distances are exact; if not, the diameter is a lower bound."),
    ),
    build=build,
    depends_on=("membership_intervals", "links"),
    settings=(DEGREE, SNAPSHOT_INTERVAL),
)
