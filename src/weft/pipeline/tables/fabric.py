"""What did the fabric look like over time, and was it regular and whole? Snapshots: see `arrow/fabric.py`."""

from typing import TYPE_CHECKING

from weft.pipeline.arrow import fabric
from weft.pipeline.arrow.frames import MICROSECONDS_PER_S
from weft.pipeline.partwise import both_by_channel
from weft.pipeline.table import COUNT, FLAG, NUMBER, TEXT, TIME, Column, Inputs, Setting, Table
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEGREE = Setting("degree", 0, "Links that each peer keeps; 0: the most that any peer on the tape had at once.")
STEP = Setting("snapshot_step_s", 1.0, "Changes of the fabric within so many seconds make one snapshot.")


def build(inputs: Inputs) -> "DataFrame":
    degree = int(inputs.settings.get(DEGREE.name, DEGREE.default))
    step_us = int(float(inputs.settings.get(STEP.name, STEP.default)) * MICROSECONDS_PER_S)

    def seen(links: pa.Table, lives: pa.Table) -> pa.Table:
        return fabric.fabric(links, lives, degree=degree, step_us=max(step_us, 1))

    return TABLE.shaped(both_by_channel(inputs["links"], inputs["lives"], seen, fabric.FABRIC))


TABLE = Table(
    name="fabric",
    question="What did the fabric look like over time: how regular, how whole, how far across?",
    columns=(
        Column("channel", TEXT, "First digits of the channel's id."),
        Column("time", TIME, "When; all changes up to and at this moment are in it."),
        Column("reason", TEXT, "loss (a peer is gone at this moment) or change (the last one of a batch)."),
        Column("peers", COUNT, "Peers that are there."),
        Column("unrecorded", COUNT, "Those of them that do not record: their links are known from neighbours only."),
        Column("links", COUNT, "Links that both ends have."),
        Column("degree", COUNT, "Links that each peer should have."),
        Column("degrees", pa.map_(pa.int64(), pa.int64()), "How many links -> how many peers have so many."),
        Column("is_regular", FLAG, "Whether all peers that record have `degree` links (one may lack one, if odd)."),
        Column("components", COUNT, "Parts that cannot reach each other; 1 if the fabric is whole."),
        Column("diameter", COUNT, "Links between the two peers farthest apart; null unless the fabric is whole."),
        Column("mean_distance", NUMBER, "Links between two peers on average; null unless the fabric is whole."),
        Column(
            "is_exact", FLAG, "Whether distances are exact, or from some peers only (a diameter at least so large)."
        ),
    ),
    build=build,
    needs=("lives", "links"),
    settings=(DEGREE, STEP),
)
