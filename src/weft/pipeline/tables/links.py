"""Which links were there from when to when? Both ends' words put together: see `arrow/links.py`."""

from typing import TYPE_CHECKING

from weft.pipeline.arrow import links
from weft.pipeline.partwise import both_by_channel
from weft.pipeline.table import ID, NUMBER, TEXT, TIME, Column, Inputs, Table
from weft.pipeline.tables.clocks import correction
from weft.pipeline.tables.lives import changes
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: Inputs) -> "DataFrame":
    clocks = correction(inputs)

    def matched(rows: pa.Table, lives: pa.Table) -> pa.Table:
        return links.links(rows, lives, clocks)

    return TABLE.shaped(both_by_channel(changes(inputs.events), inputs["lives"], matched, links.LINKS))


TABLE = Table(
    name="links",
    question="Which two peers were linked from when to when, and how did the link end?",
    columns=(
        Column("channel", TEXT, "First digits of the channel's id."),
        Column("low", ID, "The end whose id comes first."),
        Column("high", ID, "The other end."),
        Column("up", TIME, "From when both ends had it, by the reference's clock."),
        Column("down", TIME, "When the first end gave it up, or died; null if it lasted to the end of the tape."),
        Column("seconds", NUMBER, "How long it lasted; null if to the end of the tape."),
        Column("known_by", TEXT, "both ends; one (the other records nothing, or no more); half (the other denies it)."),
        Column("low_up", TIME, "What the first end told: when it came up."),
        Column("low_down", TIME, "When it ended there; null if it told of no end."),
        Column("low_why", TEXT, "How it ended there."),
        Column("high_up", TIME, "What the other end told: when it came up."),
        Column("high_down", TIME, "When it ended there; null if it told of no end."),
        Column("high_why", TEXT, "How it ended there."),
        Column("died", ID, "The end that died with this link up, if one did."),
    ),
    build=build,
    needs=("clocks", "lives"),
)
