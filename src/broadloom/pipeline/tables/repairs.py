"""How long the fabric took to be regular and connected again after each lost peer."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import repairs
from broadloom.pipeline.partwise import cogroup_by_channel
from broadloom.pipeline.table import CHANNEL, COUNT, ID, NUMBER, TEXT, TIME, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.fabric_snapshots import DEGREE
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    degree = int(inputs.settings.get(DEGREE.name, DEGREE.default))

    def timed(links: pa.Table, intervals: pa.Table) -> pa.Table:
        return repairs.repairs(links, intervals, degree=degree)

    return TABLE.conform(cogroup_by_channel(inputs["links"], inputs["membership_intervals"], timed, repairs.REPAIRS))


TABLE = Table(
    name="repairs",
    question="How long did each repair take?",
    columns=(
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
    ),
    build=build,
    depends_on=("membership_intervals", "links"),
    settings=(DEGREE,),
)
