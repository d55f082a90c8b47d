"""How long did the fabric take to be regular and whole again after each loss?"""

from typing import TYPE_CHECKING

from weft.pipeline.arrow import repairs
from weft.pipeline.partwise import both_by_channel
from weft.pipeline.table import COUNT, ID, NUMBER, TEXT, TIME, Column, Inputs, Table
from weft.pipeline.tables.fabric import DEGREE
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: Inputs) -> "DataFrame":
    degree = int(inputs.settings.get(DEGREE.name, DEGREE.default))

    def timed(links: pa.Table, lives: pa.Table) -> pa.Table:
        return repairs.repairs(links, lives, degree=degree)

    return TABLE.shaped(both_by_channel(inputs["links"], inputs["lives"], timed, repairs.REPAIRS))


TABLE = Table(
    name="repairs",
    question="How long did it take after each loss of a peer until the fabric was regular and whole again?",
    columns=(
        Column("channel", TEXT, "First digits of the channel's id."),
        Column("peer", ID, "The peer that was lost."),
        Column("how", TEXT, "left (in good order) or died."),
        Column("lost_at", TIME, "When it began to leave, or its last sign of life."),
        Column("links", COUNT, "Links that it had then."),
        Column("peers_after", COUNT, "Peers that were there without it."),
        Column("components_after", COUNT, "Parts into which the rest fell at that moment; 1 if it stayed whole."),
        Column("lost_meanwhile", COUNT, "Other peers lost at the same time or before the repair was done."),
        Column("repaired_at", TIME, "When the fabric was first regular and whole; null if not before the tape ends."),
        Column("repair_s", NUMBER, "Seconds in between."),
    ),
    build=build,
    needs=("lives", "links"),
    settings=(DEGREE,),
)
