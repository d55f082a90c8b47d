"""One row a message and receiver: when it came, when it was delivered and how often, or that it was missed.

The function sees all that the receivers in it were given of the authors in it, and the messages of those authors.
"""

import polars as pl

from broadloom.pipeline.arrow.exact import frame, to_schema
from broadloom.pipeline.table import COUNT, FLAG, ID, TEXT, TIME, TableColumn
from broadloom.record.arrow_import import pa

MISSED_MAX = 1_000_000
"""Messages of one report that become rows. More is nonsense of a hostile member."""

COLUMNS = (
    TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
    TableColumn("author", ID, "Who broadcast the message."),
    TableColumn("sequence", COUNT, "The author's running number of it."),
    TableColumn("receiver", ID, "Who got it, or was told that it missed it."),
    TableColumn("sent", TIME, "When it was sent, by the author's clock; null if the author did not record."),
    TableColumn("received", TIME, "When its first copy came, by the receiver's clock."),
    TableColumn("delivered", TIME, "When the application first got it; null if it did not."),
    TableColumn("copies", COUNT, "How often the application got it: 1, if all is well."),
    TableColumn("missed", TIME, "When the application was told that it will not get it; null if it was not."),
    TableColumn("hops", COUNT, "Links that it had travelled."),
    TableColumn("neighbour", ID, "Who brought the first copy."),
    TableColumn("size", COUNT, "Bytes of its payload."),
    TableColumn("run", TEXT, "Run that recorded the receiver."),
    TableColumn("ordinal", COUNT, "Ordinal of the first delivery in that run: the order of delivery."),
    TableColumn("missed_ordinal", COUNT, "Ordinal of the report that it was missed."),
    TableColumn("answers", FLAG, "Whether it responds to another message."),
    TableColumn("parent_author", ID, "Author of the message that it responds to."),
    TableColumn("parent_sequence", COUNT, "Running number of the message that it responds to."),
)
SCHEMA = pa.schema([pa.field(each.name, each.type) for each in COLUMNS])

KEYS = ["channel", "author", "sequence", "receiver"]
KINDS = ("received", "delivered", "missed")
MESSAGE = "message"
"""Kind of a row that comes from the table of messages."""

INPUT_COLUMNS = [
    *("kind", "channel", "author", "sequence", "last", "receiver", "time", "run", "ordinal", "hops", "neighbour"),
    *("size", "parent_author", "parent_sequence"),
]


def pair_deliveries(rows: pa.Table) -> pa.Table:
    """`rows` are of the tape, of these kinds, and messages with the time of their sending (null if not recorded)."""
    got = frame(rows)
    kinds = {str(key[0]): part for key, part in got.partition_by("kind", as_dict=True).items()}
    nothing = got.clear()
    said = kinds.get(MESSAGE, nothing)
    received = kinds.get("received", nothing).unique(KEYS, keep="any")
    received = received.select(*KEYS, pl.col("time").alias("received"), "neighbour", "hops", "size", "run")
    parent = ["parent_author", "parent_sequence"]
    delivered = kinds.get("delivered", nothing).sort("ordinal")
    first = delivered.unique(KEYS, keep="first")
    first = first.select(*KEYS, pl.col("time").alias("delivered"), "ordinal", "hops", "size", "run", *parent)
    if first.height < delivered.height:
        counts = delivered.group_by(KEYS).len("copies").with_columns(pl.col("copies").cast(pl.Int64))
        first = first.join(counts, KEYS, "left")
    else:
        first = first.with_columns(pl.lit(1, pl.Int64).alias("copies"))
    both = _coalescing_join(first, received, ["hops", "size", "run"])
    missed = _expand_missed(kinds.get("missed", nothing), said)
    if missed.height:
        both = _coalescing_join(both, missed, ["run"])
    else:
        both = both.with_columns(
            pl.lit(None, pl.Datetime("us", "UTC")).alias("missed"), pl.lit(None, pl.Int64).alias("missed_ordinal")
        )
    sent = said.select("channel", "author", "sequence", pl.col("time").alias("sent"))
    both = both.join(sent, ["channel", "author", "sequence"], "left").with_columns(
        pl.col("copies").fill_null(0), pl.col("parent_author").is_not_null().alias("answers")
    )
    return to_schema(both, SCHEMA)


def _coalescing_join(one: pl.DataFrame, other: pl.DataFrame, shared: list[str]) -> pl.DataFrame:
    """All of both; what both tell is taken from the first, if it tells."""
    both = one.join(other, KEYS, "full", coalesce=True, suffix="_other")
    return both.with_columns(pl.coalesce(name, f"{name}_other").alias(name) for name in shared).drop(
        [f"{name}_other" for name in shared]
    )


def _expand_missed(missed: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """One row for each message of a report, as far as there are any of which somebody knows."""
    known = messages.group_by("channel", "author").agg(pl.col("sequence").max().alias("known"))
    ranges = missed.join(known, ["channel", "author"], "left").with_columns(
        pl.min_horizontal(
            pl.col("last").fill_null(pl.col("sequence")),
            pl.max_horizontal(pl.col("known").fill_null(0), pl.col("sequence")),
            pl.col("sequence") + MISSED_MAX - 1,
        ).alias("last")
    )
    ranges = ranges.with_columns(pl.int_ranges("sequence", pl.col("last") + 1).alias("sequence")).explode("sequence")
    ranges = ranges.drop_nulls("sequence").sort("ordinal").unique(KEYS, keep="first")
    return ranges.select(*KEYS, pl.col("time").alias("missed"), pl.col("ordinal").alias("missed_ordinal"), "run")
