"""One row per message and receiver: pairs received, delivered and missed events.

A part has all events of its receivers. A delivery is named by one packed number (`engine/keys.py`). Forged rows, about
messages that were never sent or have another size by their author, are not listed here but in `audit_findings`.
"""

import polars as pl

from broadloom.pipeline.analysis.forged_rows import JUMP_MAX
from broadloom.pipeline.analysis.suspects import overwritten
from broadloom.pipeline.engine.events import TEXT as TEXT_CODES
from broadloom.pipeline.engine.events import TIME as TIME_TYPE
from broadloom.pipeline.engine.events import dictionary_array, plain
from broadloom.pipeline.engine.keys import MessageKeys
from broadloom.pipeline.table import CHANNEL, Stage, Table, column
from broadloom.record.arrow_import import pa

MISSED_MAX = 1_000_000
"""Messages of one report that become rows. A larger range is nonsense from a hostile member."""

COLUMNS = (
    CHANNEL,
    column("author", "Author of the message."),
    column("sequence", "Sequence number of the message."),
    column("receiver", "Peer that got it or missed it."),
    column("sent_time", "Time of the sending, by the author's clock; null if the author did not record."),
    column("received_time", "Arrival of the first copy, by the receiver's clock."),
    column("delivered_time", "First delivery to the application; null if none."),
    column("delivery_count", "Deliveries to the application; 1 if all is well."),
    column("missed_time", "When it was reported to the application as missed; null if it was not."),
    column("hops", "Links traveled."),
    column("neighbor", "Neighbor that sent the first copy."),
    column("size_bytes", "Size of the payload."),
    column("run_id", "Run that recorded the receiver."),
    column("ordinal", "Ordinal of the first delivery in that run: the order of delivery."),
    column("missed_ordinal", "Ordinal of the missed report."),
    column("is_reply", "Whether it replies to another message."),
    column("parent_author", "Author of the message it replies to."),
    column("parent_sequence", "Sequence number of the message it replies to."),
)

MESSAGE_COLUMNS = ("author", "sequence", "sent_time", "is_recorded", "size_bytes")
"""The columns of `messages` that deliveries are compared with."""

FORGED_COLUMNS = (
    *("kind", "author", "sequence", "receiver", "run_id", "ordinal", "event_time", "size_bytes", "hops", "detail"),
)
"""The columns of forged rows; `detail` says why."""

EVENT_COLUMNS = (
    *("kind", "author", "sequence", "last_sequence", "peer", "event_time", "run_id", "ordinal", "hops", "neighbor"),
    *("size_bytes", "parent_author", "parent_sequence"),
)


def pair_deliveries(events: pl.DataFrame, messages: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, MessageKeys]:
    """All deliveries to the receivers of a part, in the order of author, receiver and sequence, and the forged rows.

    `messages` has `MESSAGE_COLUMNS` of all messages of the channel. The deliveries have `key` and `pair` too, by the
    keys that are returned with them.
    """
    kind = pl.col("kind")
    events = events.select(EVENT_COLUMNS).rename({"peer": "receiver"})
    rows, reports = events.filter(kind.is_in(("received", "delivered"))), events.filter(kind == "missed")
    missed = expand_missed(reports, messages)
    keys = MessageKeys(
        [rows["author"], rows["receiver"], rows["parent_author"], *reports["author", "receiver"], messages["author"]],
        [rows["sequence"], missed["sequence"], messages["sequence"]],
    )
    sent = pl.when("is_recorded")
    known = messages.select(
        message=keys.message(),
        sent_time=sent.then("sent_time"),
        sent_size=sent.then("size_bytes"),
        is_sent=pl.lit(True),
    )
    reports = reports.join(missed, on=["author", "sequence", "receiver"], how="anti")
    rows = rows.with_columns(key=keys.delivery(), message=keys.message())
    rows = rows.join(known, on="message", how="left", maintain_order="left")
    rows, forged = _split_forged(rows.drop("message"), reports)
    received = rows.select(
        *("kind", "key", "neighbor"),
        *(pl.col(name).alias(f"{name}_other") for name in ("hops", "size_bytes", "run_id", "sent_time")),
        received_time="event_time",
    )
    received = received.filter(kind == "received").drop("kind")
    delivered = _first_deliveries(rows)
    if received["key"].n_unique() < received.height:
        twice = rows.filter(kind == "received").filter(pl.col("key").is_duplicated())
        twice = twice.join(delivered.filter(pl.col("delivery_count") > 1), "key", "anti")
        twice = plain(twice.with_columns(detail=pl.lit("its first copy came twice")).select(FORGED_COLUMNS))
        forged = pl.concat([forged, twice])
        received = received.unique("key", keep="first", maintain_order=True)
    both = _joined(delivered, received, "sent_time", "hops", "size_bytes", "run_id")
    if missed.height:
        missed = missed.with_columns(key=keys.delivery(), message=keys.message())
        missed = missed.join(known.select("message", "sent_time"), on="message", how="left")
        missed = missed.select(
            "key", "missed_time", "missed_ordinal", run_id_other="run_id", sent_time_other="sent_time"
        )
        both = _joined(both, missed, "run_id", "sent_time")
    else:
        nothing = {"missed_time": pl.lit(None, TIME_TYPE), "missed_ordinal": pl.lit(None, pl.Int64)}
        both = both.with_columns(**nothing)
    both = keys.unpack(both.sort("key"), "key").with_columns(
        pl.col("delivery_count").fill_null(0), is_reply=pl.col("parent_author").is_not_null()
    )
    deliveries, receipts = overwritten(both, forged)
    for wrong, kind_name, time in (
        (deliveries, "delivered", "delivered_time"),
        (receipts, "received", "received_time"),
    ):
        if wrong.height:
            both = both.join(wrong, "key", "anti", maintain_order="left")
            detail = pl.lit("matches no message received at this position")
            wrong = wrong.with_columns(kind=pl.lit(kind_name), event_time=time, detail=detail)
            forged = pl.concat([forged, plain(wrong.select(FORGED_COLUMNS))])
    return both, forged, keys


def _joined(one: pl.DataFrame, other: pl.DataFrame, *shared: str) -> pl.DataFrame:
    """All rows of both. Columns that both have are named `..._other` in the second."""
    both = one.join(other, on="key", how="full", coalesce=True)
    others = [f"{name}_other" for name in shared]
    return both.with_columns(pl.coalesce(name, f"{name}_other") for name in shared).drop(others)


def _split_forged(rows: pl.DataFrame, reports: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows about messages that were sent as they say, and the others with the reason as `detail`. `reports` are reports
    of missed messages far beyond the last one that is known."""
    is_right = pl.col("is_sent").fill_null(False) & (pl.col("size_bytes") == pl.col("sent_size")).fill_null(True)
    detail = (
        pl.when(pl.col("is_sent").is_null())
        .then(pl.lit("no such message was sent"))
        .otherwise(pl.format("it has {} bytes, but its author sent {}", "size_bytes", "sent_size"))
    )
    reports = reports.with_columns(detail=pl.lit("reports messages far beyond the last one that is known"))
    wrong = rows.filter(~is_right).with_columns(detail=detail)
    rows = rows.filter(is_right) if wrong.height else rows
    forged = plain(pl.concat([wrong.select(FORGED_COLUMNS), reports.select(FORGED_COLUMNS)]))
    return rows.drop("sent_size", "is_sent"), forged


def _first_deliveries(rows: pl.DataFrame) -> pl.DataFrame:
    columns = ("key", "ordinal", "hops", "size_bytes", "run_id", "parent_author", "parent_sequence", "sent_time")
    found = rows.select("kind", *columns, delivered_time="event_time")
    found = found.filter(pl.col("kind") == "delivered").drop("kind")
    if found["key"].n_unique() == found.height:
        nothing = pl.lit(None, pl.Int64)
        return found.with_columns(delivery_count=pl.lit(1, pl.Int64), again_ordinal=nothing, again_hops=nothing)
    found = found.sort("ordinal")
    again = found.filter(pl.col("key").is_duplicated()).group_by("key", maintain_order=True)
    counts = again.agg(
        delivery_count=pl.len().cast(pl.Int64), again_ordinal=pl.col("ordinal").last(), again_hops=pl.col("hops").last()
    )
    found = found.unique("key", keep="first", maintain_order=True).join(counts, on="key", how="left")
    return found.with_columns(pl.col("delivery_count").fill_null(1))


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
    """Of a report, where `known` is the last message of its author on any tape. Null if the report is nonsense."""
    known, first = pl.col("known").fill_null(0), pl.col("sequence")
    last = pl.min_horizontal(
        pl.col("last_sequence").fill_null(first), pl.max_horizontal(known, first), first + MISSED_MAX - 1
    )
    return pl.when(first <= known + JUMP_MAX).then(last)


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
    return pa.table(columns, names=[each.name for each in COLUMNS])


TABLE = Table(
    "deliveries",
    "Which receiver got which message, and when?",
    COLUMNS,
    Stage.PAIR,
    depends_on=("messages",),
)
