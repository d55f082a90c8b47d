"""One row per message and receiver: pairs received, delivered and missed events.

A part has all events of its receivers. A delivery is named by one packed number (`engine/keys.py`).
"""

import polars as pl

from broadloom.pipeline.engine.events import TEXT as TEXT_CODES
from broadloom.pipeline.engine.events import TIME as TIME_TYPE
from broadloom.pipeline.engine.events import dictionary_array
from broadloom.pipeline.engine.keys import MessageKeys
from broadloom.pipeline.table import CHANNEL, COUNT, FLAG, ID, TEXT, TIME, Stage, Table, TableColumn, schema_of
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
SCHEMA = schema_of(COLUMNS)

KINDS = ("received", "delivered", "missed")
EVENT_COLUMNS = (
    *("kind", "author", "sequence", "last_sequence", "peer", "event_time", "run_id", "ordinal", "hops", "neighbor"),
    *("size_bytes", "parent_author", "parent_sequence"),
)


def pair_deliveries(events: pl.DataFrame, messages: pl.DataFrame) -> tuple[pl.DataFrame, MessageKeys]:
    """All deliveries to the receivers of a part, in the order of author, receiver and sequence.

    `messages` has author, sequence and `sent_time` (null if not recorded) of all messages of the channel. The result
    has `key` and `pair` too, by the keys that are returned with it.
    """
    kind = pl.col("kind")
    rows = events.filter(kind.is_in(KINDS)).select(EVENT_COLUMNS).rename({"peer": "receiver"})
    missed = expand_missed(rows.filter(kind == "missed"), messages)
    keys = MessageKeys(
        [rows["author"], rows["receiver"], rows["parent_author"], messages["author"]],
        [rows["sequence"], missed["sequence"], messages["sequence"]],
    )
    rows = rows.with_columns(key=keys.delivery())
    received = rows.filter(kind == "received").select(
        "key", "neighbor", received_time="event_time", hops_other="hops", size_other="size_bytes", run_other="run_id"
    )
    if received["key"].n_unique() < received.height:
        received = received.unique("key", keep="first", maintain_order=True)
    both = _first_deliveries(rows.filter(kind == "delivered")).join(received, on="key", how="full", coalesce=True)
    both = both.with_columns(
        pl.coalesce("hops", "hops_other"),
        pl.coalesce("size_bytes", "size_other"),
        pl.coalesce("run_id", "run_other"),
    ).drop("hops_other", "size_other", "run_other")
    if missed.height:
        missed = missed.select("missed_time", "missed_ordinal", key=keys.delivery(), run_other="run_id")
        both = both.join(missed, on="key", how="full", coalesce=True)
        both = both.with_columns(pl.coalesce("run_id", "run_other")).drop("run_other")
    else:
        nothing = {"missed_time": pl.lit(None, TIME_TYPE), "missed_ordinal": pl.lit(None, pl.Int64)}
        both = both.with_columns(**nothing)
    both = keys.unpack(both.sort("key"), "key")
    sent = messages.select("sent_time", message=keys.message())
    both = both.with_columns(message=keys.message()).join(sent, on="message", how="left", maintain_order="left")
    both = both.drop("message").with_columns(
        pl.col("delivery_count").fill_null(0), is_reply=pl.col("parent_author").is_not_null()
    )
    return both, keys


def _first_deliveries(delivered: pl.DataFrame) -> pl.DataFrame:
    columns = ("key", "ordinal", "hops", "size_bytes", "run_id", "parent_author", "parent_sequence")
    found = delivered.select(*columns, delivered_time="event_time")
    if found["key"].n_unique() == found.height:
        return found.with_columns(delivery_count=pl.lit(1, pl.Int64))
    counts = found.group_by("key").agg(delivery_count=pl.len().cast(pl.Int64))
    return found.sort("ordinal").unique("key", keep="first", maintain_order=True).join(counts, on="key", how="left")


def expand_missed(missed: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """One row per message of a missed report, up to the last message known on any tape."""
    known = messages.group_by("author").agg(known=pl.col("sequence").max())
    ranges = missed.join(known, on="author", how="left").with_columns(last_sequence=last_missed())
    sequences = pl.int_ranges("sequence", pl.col("last_sequence") + 1).alias("sequence")
    ranges = ranges.with_columns(sequences).explode("sequence").drop_nulls("sequence")
    ranges = ranges.sort("ordinal").unique(["author", "sequence", "receiver"], keep="first", maintain_order=True)
    return ranges.select(
        *("author", "sequence", "receiver", "run_id"), missed_time="event_time", missed_ordinal="ordinal"
    )


def last_missed() -> pl.Expr:
    """Of a report, where `known` is the last message of its author on any tape."""
    return pl.min_horizontal(
        pl.col("last_sequence").fill_null(pl.col("sequence")),
        pl.max_horizontal(pl.col("known").fill_null(0), pl.col("sequence")),
        pl.col("sequence") + MISSED_MAX - 1,
    )


def deliveries_table(deliveries: pl.DataFrame, channel: str) -> pa.Table:
    """The rows of the table. Texts stay dictionaries, as Parquet stores them."""
    columns = []
    for each in COLUMNS:
        if each.name == CHANNEL.name:
            columns.append(
                dictionary_array(pl.Series([channel], dtype=TEXT_CODES).new_from_index(0, deliveries.height))
            )
        elif deliveries.schema[each.name] == TEXT_CODES:
            columns.append(dictionary_array(deliveries[each.name]))
        else:
            columns.append(deliveries[each.name].to_arrow(compat_level=pl.CompatLevel.oldest()).cast(each.type))
    return pa.table(columns, names=SCHEMA.names)


TABLE = Table(
    "deliveries",
    "Which receiver got which message, and when?",
    COLUMNS,
    Stage.PAIR,
    depends_on=("messages",),
)
