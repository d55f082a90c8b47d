"""Which links were there from when to when? Both ends' words put together: see `arrow/links.py`."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import links
from broadloom.pipeline.partwise import cogroup_by_channel
from broadloom.pipeline.table import ID, NUMBER, TEXT, TIME, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.clock_offsets import correction
from broadloom.pipeline.tables.membership_intervals import changes
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    clocks = correction(inputs)

    def matched(rows: pa.Table, lives: pa.Table) -> pa.Table:
        return links.links(rows, lives, clocks)

    return TABLE.conform(cogroup_by_channel(changes(inputs.events), inputs["lives"], matched, links.LINKS))


TABLE = Table(
    name="links",
    question="Which two peers were linked from when to when, and how did the link end?",
    columns=(
        TableColumn("channel", TEXT, "First digits of the channel's id."),
        TableColumn("low", ID, "The end whose id comes first."),
        TableColumn("high", ID, "The other end."),
        TableColumn("up", TIME, "From when both ends had it, by the reference's clock."),
        TableColumn("down", TIME, "When the first end gave it up, or died; null if it lasted to the end of the tape."),
        TableColumn("seconds", NUMBER, "How long it lasted; null if to the end of the tape."),
        TableColumn(
            "known_by", TEXT, "both ends; one (the other records nothing, or no more); half (the other denies it)."
        ),
        TableColumn("low_up", TIME, "What the first end told: when it came up."),
        TableColumn("low_down", TIME, "When it ended there; null if it told of no end."),
        TableColumn("low_why", TEXT, "How it ended there."),
        TableColumn("high_up", TIME, "What the other end told: when it came up."),
        TableColumn("high_down", TIME, "When it ended there; null if it told of no end."),
        TableColumn("high_why", TEXT, "How it ended there."),
        TableColumn("died", ID, "The end that died with this link up, if one did."),
    ),
    build=build,
    depends_on=("clocks", "lives"),
)
