"""Links as time intervals, merged from what their two ends recorded (see `arrow/links.py`)."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import links
from broadloom.pipeline.partwise import cogroup_by_channel
from broadloom.pipeline.table import CHANNEL, ID, NUMBER, TEXT, TIME, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.clock_offsets import correction
from broadloom.pipeline.tables.membership_intervals import membership_events
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    clocks = correction(inputs)

    def matched(rows: pa.Table, intervals: pa.Table) -> pa.Table:
        return links.links(rows, intervals, clocks)

    rows, intervals = membership_events(inputs.events), inputs["membership_intervals"]
    return TABLE.conform(cogroup_by_channel(rows, intervals, matched, links.LINKS))


TABLE = Table(
    name="links",
    question="Which peers were linked from when to when, and how did the link end?",
    columns=(
        CHANNEL,
        TableColumn("peer_a", ID, "The end with the lower peer ID."),
        TableColumn("peer_b", ID, "The other end."),
        TableColumn("start_time", TIME, "When both ends had the link, by the reference clock."),
        TableColumn("end_time", TIME, "When the first end dropped it or crashed; null if still up at the end."),
        TableColumn("duration_ms", NUMBER, "Duration; null if still up at the end."),
        TableColumn(
            "evidence", TEXT, "`both` ends; `one` (the other has no tape then); `disputed` (the other denies it)."
        ),
        TableColumn("a_start_time", TIME, "Link up as recorded by peer a."),
        TableColumn("a_end_time", TIME, "Link down as recorded by peer a; null if not recorded."),
        TableColumn("a_reason", TEXT, "Reason recorded by peer a."),
        TableColumn("b_start_time", TIME, "Link up as recorded by peer b."),
        TableColumn("b_end_time", TIME, "Link down as recorded by peer b; null if not recorded."),
        TableColumn("b_reason", TEXT, "Reason recorded by peer b."),
        TableColumn("crashed_peer", ID, "The end that crashed while the link was up, if one did."),
    ),
    build=build,
    depends_on=("clock_offsets", "membership_intervals"),
)
