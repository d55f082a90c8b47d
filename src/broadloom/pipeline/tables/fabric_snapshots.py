"""What did the fabric look like over time, and was it regular and whole? Snapshots: see `arrow/fabric.py`."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import fabric_snapshots
from broadloom.pipeline.arrow.frames import MICROSECONDS_PER_S
from broadloom.pipeline.partwise import cogroup_by_channel
from broadloom.pipeline.table import COUNT, FLAG, NUMBER, TEXT, TIME, Table, TableColumn, TableInputs, TableSetting
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEGREE = TableSetting("degree", 0, "Links that each peer keeps; 0: the most that any peer on the tape had at once.")
SNAPSHOT_INTERVAL = TableSetting(
    "snapshot_step_s", 1.0, "Changes of the fabric within so many seconds make one snapshot."
)


def build(inputs: TableInputs) -> "DataFrame":
    degree = int(inputs.settings.get(DEGREE.name, DEGREE.default))
    step_us = int(float(inputs.settings.get(SNAPSHOT_INTERVAL.name, SNAPSHOT_INTERVAL.default)) * MICROSECONDS_PER_S)

    def seen(links: pa.Table, lives: pa.Table) -> pa.Table:
        return fabric_snapshots.fabric_snapshots(links, lives, degree=degree, interval_us=max(step_us, 1))

    return TABLE.conform(cogroup_by_channel(inputs["links"], inputs["lives"], seen, fabric_snapshots.FABRIC_SNAPSHOTS))


TABLE = Table(
    name="fabric",
    question="What did the fabric look like over time: how regular, how whole, how far across?",
    columns=(
        TableColumn("channel", TEXT, "First digits of the channel's id."),
        TableColumn("time", TIME, "When; all changes up to and at this moment are in it."),
        TableColumn("reason", TEXT, "loss (a peer is gone at this moment) or change (the last one of a batch)."),
        TableColumn("peers", COUNT, "Peers that are there."),
        TableColumn(
            "unrecorded", COUNT, "Those of them that do not record: their links are known from neighbours only."
        ),
        TableColumn("links", COUNT, "Links that both ends have."),
        TableColumn("degree", COUNT, "Links that each peer should have."),
        TableColumn("degrees", pa.map_(pa.int64(), pa.int64()), "How many links -> how many peers have so many."),
        TableColumn(
            "is_regular", FLAG, "Whether all peers that record have `degree` links (one may lack one, if odd)."
        ),
        TableColumn("components", COUNT, "Parts that cannot reach each other; 1 if the fabric is whole."),
        TableColumn("diameter", COUNT, "Links between the two peers farthest apart; null unless the fabric is whole."),
        TableColumn("mean_distance", NUMBER, "Links between two peers on average; null unless the fabric is whole."),
        TableColumn(
            "is_exact", FLAG, "Whether distances are exact, or from some peers only (a diameter at least so large)."
        ),
    ),
    build=build,
    depends_on=("lives", "links"),
    settings=(DEGREE, SNAPSHOT_INTERVAL),
)
