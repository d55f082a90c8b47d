"""Pairs received, delivered and missed events into one row per message and receiver.

The function sees all events of its receivers about its authors, and all messages of those authors.
"""

import polars as pl

from broadloom.pipeline.arrow.exact import frame, to_schema
from broadloom.pipeline.table import CHANNEL, COUNT, FLAG, ID, TEXT, TIME, TableColumn
from broadloom.record.arrow_import import pa

MISSED_MAX = 1_000_000
"""Messages of one report that become rows. A larger range is nonsense from a hostile member."""

COLUMNS = (
    CHANNEL,
    TableColumn("author", ID, "Author of the message."),
    TableColumn("sequence", COUNT, "Sequence number of the message."),
    TableColumn("receiver", ID, "Peer that got it or missed it."),
    TableColumn("sent_time", TIME, "Time of the sending, by the author's clock; null if the author did not record."),
    TableColumn("received_time", TIME, "Arrival of the first copy, by the receiver's clock."),
    TableColumn("delivered_time", TIME, "First delivery to the application; null if none."),
    TableColumn("delivery_count", COUNT, "Deliveries to the application; 1 if all is well."),
    TableColumn("missed_time", TIME, "When it was reported to the application as missed; null if it was not."),
    TableColumn("hops", COUNT, "Links traveled."),
    TableColumn("neighbor", ID, "Neighbor that sent the first copy."),
    TableColumn("size_bytes", COUNT, "Size of the payload."),
    TableColumn("run_id", TEXT, "Run that recorded the receiver."),
    TableColumn("ordinal", COUNT, "Ordinal of the first delivery in that run: the order of delivery."),
    TableColumn("missed_ordinal", COUNT, "Ordinal of the missed report."),
    TableColumn("is_reply", FLAG, "Whether it replies to another message."),
    TableColumn("parent_author", ID, "Author of the message it replies to."),
    TableColumn("parent_sequence", COUNT, "Sequence number of the message it replies to."),
)
SCHEMA = pa.schema([pa.field(each.name, each.type) for each in COLUMNS])

KEYS = ["channel", "author", "sequence", "receiver"]
KINDS = ("received", "delivered", "missed")
MESSAGE = "message"
"""Kind of the rows that come from the table `messages`."""

INPUT_COLUMNS = [
    *("kind", "channel", "author", "sequence", "last_sequence", "receiver", "event_time", "run_id", "ordinal", "hops"),
    *("neighbor", "size_bytes", "parent_author", "parent_sequence"),
]


def pair_deliveries(rows: pa.Table) -> pa.Table:
    """`rows` are events of `KINDS`, and messages with the time of their sending (null if not recorded)."""
    events = frame(rows)
    kinds = {str(key[0]): part for key, part in events.partition_by("kind", as_dict=True).items()}
    empty = events.clear()
    messages = kinds.get(MESSAGE, empty)
    received = kinds.get("received", empty).unique(KEYS, keep="any")
    received = received.select(
        *KEYS, pl.col("event_time").alias("received_time"), "neighbor", "hops", "size_bytes", "run_id"
    )
    parent = ["parent_author", "parent_sequence"]
    delivered = kinds.get("delivered", empty).sort("ordinal")
    first = delivered.unique(KEYS, keep="first")
    first = first.select(
        *KEYS, pl.col("event_time").alias("delivered_time"), "ordinal", "hops", "size_bytes", "run_id", *parent
    )
    if first.height < delivered.height:
        counts = delivered.group_by(KEYS).len("delivery_count").with_columns(pl.col("delivery_count").cast(pl.Int64))
        first = first.join(counts, KEYS, "left")
    else:
        first = first.with_columns(pl.lit(1, pl.Int64).alias("delivery_count"))
    both = _coalescing_join(first, received, ["hops", "size_bytes", "run_id"])
    missed = _expand_missed(kinds.get("missed", empty), messages)
    if missed.height:
        both = _coalescing_join(both, missed, ["run_id"])
    else:
        both = both.with_columns(
            pl.lit(None, pl.Datetime("us", "UTC")).alias("missed_time"), pl.lit(None, pl.Int64).alias("missed_ordinal")
        )
    sent = messages.select("channel", "author", "sequence", pl.col("event_time").alias("sent_time"))
    both = both.join(sent, ["channel", "author", "sequence"], "left").with_columns(
        pl.col("delivery_count").fill_null(0), pl.col("parent_author").is_not_null().alias("is_reply")
    )
    return to_schema(both, SCHEMA)


def _coalescing_join(one: pl.DataFrame, other: pl.DataFrame, shared: list[str]) -> pl.DataFrame:
    """Full join; shared columns come from `one` where it has a value."""
    both = one.join(other, KEYS, "full", coalesce=True, suffix="_other")
    return both.with_columns(pl.coalesce(name, f"{name}_other").alias(name) for name in shared).drop(
        [f"{name}_other" for name in shared]
    )


def _expand_missed(missed: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """One row per message of a missed report, up to the last message known on any tape."""
    known = messages.group_by("channel", "author").agg(pl.col("sequence").max().alias("known"))
    ranges = missed.join(known, ["channel", "author"], "left").with_columns(
        pl.min_horizontal(
            pl.col("last_sequence").fill_null(pl.col("sequence")),
            pl.max_horizontal(pl.col("known").fill_null(0), pl.col("sequence")),
            pl.col("sequence") + MISSED_MAX - 1,
        ).alias("last_sequence")
    )
    sequences = pl.int_ranges("sequence", pl.col("last_sequence") + 1).alias("sequence")
    ranges = ranges.with_columns(sequences).explode("sequence")
    ranges = ranges.drop_nulls("sequence").sort("ordinal").unique(KEYS, keep="first")
    return ranges.select(
        *KEYS, pl.col("event_time").alias("missed_time"), pl.col("ordinal").alias("missed_ordinal"), "run_id"
    )
