"""One row per message, from what its author and all its receivers recorded.

In two steps, so that little has to be shuffled: `gather_messages` makes one row per message from any events,
`merge_messages` merges such rows. The author's own record comes first; if it did not record, the receivers' is used.
"""

import polars as pl

from broadloom.pipeline.arrow.exact import frame, to_schema
from broadloom.pipeline.table import CHANNEL, COUNT, FLAG, ID, TEXT, TIME, TableColumn
from broadloom.record.arrow_import import pa

KEYS = ["channel", "author", "sequence"]
_METADATA_COLUMNS = [
    *("size_bytes", "group_id", "topic", "parent_author", "parent_sequence"),
    *("member", "member_sequence", "parent_member", "parent_member_sequence"),
]

COLUMNS = (
    CHANNEL,
    TableColumn("author", ID, "Peer that broadcast it."),
    TableColumn("sequence", COUNT, "Sequence number, per author."),
    TableColumn("sent_time", TIME, "Time of the sending, by the author's clock; if not recorded, `first_seen_time`."),
    TableColumn("is_recorded", FLAG, "Whether the author recorded the sending."),
    TableColumn("run_id", TEXT, "Run that recorded the sending."),
    TableColumn("ordinal", COUNT, "Ordinal of the sending in that run."),
    TableColumn("first_seen_time", TIME, "Earliest event about it on any tape."),
    TableColumn("delivery_count", COUNT, "Deliveries on the tapes, including duplicates."),
    TableColumn("size_bytes", COUNT, "Size of the payload."),
    TableColumn("group_id", TEXT, "Group of the message."),
    TableColumn("topic", TEXT, "Topic of the message."),
    TableColumn("parent_author", ID, "Author of the message it replies to; null for messages of groups."),
    TableColumn("parent_sequence", COUNT, "Sequence number of the message it replies to."),
    TableColumn("member", ID, "Member that posted it; stays the same when the member reconnects. Null outside groups."),
    TableColumn("member_sequence", COUNT, "Sequence number of the member's message in the group."),
    TableColumn("parent_member", ID, "Member that posted the message it replies to, in the same group."),
    TableColumn("parent_member_sequence", COUNT, "Sequence number of that member's message."),
)
SCHEMA = pa.schema([pa.field(each.name, each.type) for each in COLUMNS])

EVENT_COLUMNS = [*KEYS, "kind", "event_time", "run_id", "ordinal", *_METADATA_COLUMNS]
KINDS = ("sent", "received", "delivered")


def gather_messages(events: pa.Table) -> pa.Table:
    """One row per message, from events of `KINDS`."""
    rows = frame(events)
    seen = rows.group_by(KEYS).agg(
        pl.col("event_time").min().alias("first_seen_time"),
        (pl.col("kind") == "delivered").sum().cast(pl.Int64).alias("delivery_count"),
    )
    # `delivered` has all the metadata of `sent`; `received` has less, and sorts after it.
    by_receivers = (
        rows.filter(pl.col("kind") != "sent").sort("kind").unique(KEYS, keep="first").select(*KEYS, *_METADATA_COLUMNS)
    )
    sent = rows.filter(pl.col("kind") == "sent").sort("ordinal").unique(KEYS, keep="first")
    sent = sent.select(
        *KEYS,
        pl.col("event_time").alias("sent_time"),
        pl.lit(True).alias("is_recorded"),
        "run_id",
        "ordinal",
        *_METADATA_COLUMNS,
    )
    merged = seen.join(sent, KEYS, "left").join(by_receivers, KEYS, "left", suffix="_received")
    by_author = pl.col("is_recorded").is_not_null()
    merged = merged.with_columns(
        pl.when(by_author).then(pl.col(name)).otherwise(pl.col(f"{name}_received")).alias(name)
        for name in _METADATA_COLUMNS
    )
    return to_schema(_with_sent_time(merged), SCHEMA)


def merge_messages(parts: pa.Table) -> pa.Table:
    """One row per message, from several results of `gather_messages`."""
    rows = frame(parts)
    sums = rows.group_by(KEYS).agg(pl.col("first_seen_time").min(), pl.col("delivery_count").sum())
    # The author's row; without one, a row with a delivery, which has all the metadata.
    best = rows.sort(
        pl.col("is_recorded").not_(), pl.col("delivery_count") == 0, "first_seen_time", "ordinal", nulls_last=True
    ).unique(KEYS, keep="first", maintain_order=False)
    best = best.drop("first_seen_time", "delivery_count").join(sums, KEYS, "left")
    return to_schema(_with_sent_time(best), SCHEMA)


def _with_sent_time(rows: pl.DataFrame) -> pl.DataFrame:
    is_recorded = pl.col("is_recorded").fill_null(False)
    sent_time = pl.when(is_recorded).then(pl.col("sent_time")).otherwise(pl.col("first_seen_time"))
    return rows.with_columns(sent_time.alias("sent_time"), is_recorded.alias("is_recorded"))
