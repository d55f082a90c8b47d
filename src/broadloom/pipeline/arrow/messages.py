"""One row a message, out of what its author and all its receivers noted.

In two steps, so that little has to travel: `gathered` makes one row a message of any rows of a tape, `merged` makes one
of several such rows. The author's own word comes first; if it did not record, what its receivers know has to do.
"""

import polars as pl

from broadloom.pipeline.arrow.exact import frame, to_schema
from broadloom.pipeline.table import COUNT, FLAG, ID, TEXT, TIME, TableColumn
from broadloom.record.arrow_import import pa

KEYS = ["channel", "author", "sequence"]
_METADATA_COLUMNS = [
    *("size", "group", "topic", "parent_author", "parent_sequence"),
    *("member", "number", "parent_member", "parent_number"),
]

COLUMNS = (
    TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
    TableColumn("author", ID, "Who broadcast it."),
    TableColumn("sequence", COUNT, "The author's running number of it."),
    TableColumn("time", TIME, "When it was sent, by the author's clock; if it did not record, when it was first seen."),
    TableColumn("recorded", FLAG, "Whether the author recorded the sending."),
    TableColumn("run", TEXT, "Run in which the sending was recorded."),
    TableColumn("ordinal", COUNT, "Ordinal of the sending in that run."),
    TableColumn("first_seen", TIME, "Earliest time at which any observer had to do with it."),
    TableColumn("deliveries", COUNT, "Deliveries that are on the tapes, double ones counted."),
    TableColumn("size", COUNT, "Bytes of its payload."),
    TableColumn("group", TEXT, "Group that it belongs to."),
    TableColumn("topic", TEXT, "What it is about."),
    TableColumn("parent_author", ID, "Author of the message that it responds to; null for messages of groups."),
    TableColumn("parent_sequence", COUNT, "Running number of the message that it responds to."),
    TableColumn(
        "member", ID, "Who said it in its group: a member keeps its id, whatever peer it is; null outside groups."
    ),
    TableColumn("number", COUNT, "The member's running number of it in the group."),
    TableColumn("parent_member", ID, "Member who said what it responds to, in the same group."),
    TableColumn("parent_number", COUNT, "That member's running number of it."),
)
SCHEMA = pa.schema([pa.field(each.name, each.type) for each in COLUMNS])

EVENT_COLUMNS = [*KEYS, "kind", "time", "run", "ordinal", *_METADATA_COLUMNS]
KINDS = ("sent", "received", "delivered")


def gather_messages(events: pa.Table) -> pa.Table:
    """One row a message, of rows of the tape of these kinds."""
    rows = frame(events)
    seen = rows.group_by(KEYS).agg(
        pl.col("time").min().alias("first_seen"),
        (pl.col("kind") == "delivered").sum().cast(pl.Int64).alias("deliveries"),
    )
    # A delivery tells all that the sending does; that it came, less.
    told = (
        rows.filter(pl.col("kind") != "sent").sort("kind").unique(KEYS, keep="first").select(*KEYS, *_METADATA_COLUMNS)
    )
    sent = rows.filter(pl.col("kind") == "sent").sort("ordinal").unique(KEYS, keep="first")
    sent = sent.select(*KEYS, "time", pl.lit(True).alias("recorded"), "run", "ordinal", *_METADATA_COLUMNS)
    merged_rows = seen.join(sent, KEYS, "left").join(told, KEYS, "left", suffix="_told")
    by_author = pl.col("recorded").is_not_null()
    merged_rows = merged_rows.with_columns(
        pl.when(by_author).then(pl.col(name)).otherwise(pl.col(f"{name}_told")).alias(name)
        for name in _METADATA_COLUMNS
    )
    return to_schema(_timed(merged_rows), SCHEMA)


def merge_messages(parts: pa.Table) -> pa.Table:
    """One row a message, of several that `gathered` made."""
    rows = frame(parts)
    sums = rows.group_by(KEYS).agg(pl.col("first_seen").min(), pl.col("deliveries").sum())
    # Of those who were not the author, whoever was told most.
    best = rows.sort(
        pl.col("recorded").not_(), pl.col("deliveries") == 0, "first_seen", "ordinal", nulls_last=True
    ).unique(KEYS, keep="first", maintain_order=False)
    return to_schema(_timed(best.drop("first_seen", "deliveries").join(sums, KEYS, "left")), SCHEMA)


def _timed(rows: pl.DataFrame) -> pl.DataFrame:
    recorded = pl.col("recorded").fill_null(False)
    return rows.with_columns(
        pl.when(recorded).then(pl.col("time")).otherwise(pl.col("first_seen")).alias("time"), recorded.alias("recorded")
    )
