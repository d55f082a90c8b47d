"""How long did the fabric take to be regular and whole again after each loss?"""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import repairs
from broadloom.pipeline.partwise import cogroup_by_channel
from broadloom.pipeline.table import COUNT, ID, NUMBER, TEXT, TIME, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.fabric_snapshots import DEGREE
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    degree = int(inputs.settings.get(DEGREE.name, DEGREE.default))

    def timed(links: pa.Table, lives: pa.Table) -> pa.Table:
        return repairs.repairs(links, lives, degree=degree)

    return TABLE.conform(cogroup_by_channel(inputs["links"], inputs["lives"], timed, repairs.REPAIRS))


TABLE = Table(
    name="repairs",
    question="How long did it take after each loss of a peer until the fabric was regular and whole again?",
    columns=(
        TableColumn("channel", TEXT, "First digits of the channel's id."),
        TableColumn("peer", ID, "The peer that was lost."),
        TableColumn("how", TEXT, "left (in good order) or died."),
        TableColumn("lost_at", TIME, "When it began to leave, or its last sign of life."),
        TableColumn("links", COUNT, "Links that it had then."),
        TableColumn("peers_after", COUNT, "Peers that were there without it."),
        TableColumn("components_after", COUNT, "Parts into which the rest fell at that moment; 1 if it stayed whole."),
        TableColumn("lost_meanwhile", COUNT, "Other peers lost at the same time or before the repair was done."),
        TableColumn(
            "repaired_at", TIME, "When the fabric was first regular and whole; null if not before the tape ends."
        ),
        TableColumn("repair_s", NUMBER, "Seconds in between."),
    ),
    build=build,
    depends_on=("lives", "links"),
    settings=(DEGREE,),
)
