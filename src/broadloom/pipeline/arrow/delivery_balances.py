"""Which messages were due to each receiver, which arrived, and what is wrong with that. The core of the audit.

A receiver is due everything sent after it joined. Up to the last message it has from an author, everything must be
there, because delivery is in order. Beyond that, a message is due

- to a receiver that is present at the end, if it was sent `settle_s` before the end. If its author did not stay, only
  as far as any present peer has its messages: the last messages of a crashed author may have reached no survivor;
- to a receiver that left gracefully, if it was sent `settle_s` before that and no peer lost a link since then, or
  shortly before or after;
- not to a receiver that crashed: a message on its way to it was not late.

A delivery that may be hidden in rows that the recorder dropped or that are quarantined is not judged, and neither is
one that the clocks of two machines leave open. These are counted instead (`unknown_...`). Within one run, only ordinals
define the order.
"""

from dataclasses import dataclass

import polars as pl

from broadloom.pipeline.arrow.exact import frame, to_schema
from broadloom.pipeline.arrow.suspects import PAIR, excused_by_dropped_rows, find_missing
from broadloom.pipeline.table import CHANNEL, COUNT, ID, TEXT, TIME, TableColumn
from broadloom.record.arrow_import import pa

FINDING = pa.struct(
    [pa.field("finding", TEXT), pa.field("sequence", COUNT), pa.field("event_time", TIME), pa.field("detail", TEXT)]
)

COLUMNS = (
    CHANNEL,
    TableColumn("author", ID, "Author of the messages."),
    TableColumn("receiver", ID, "Peer they were due to."),
    TableColumn("due_count", COUNT, "Messages that were due and can be judged."),
    TableColumn("delivered_count", COUNT, "Messages delivered, due or not."),
    TableColumn("missed_count", COUNT, "Messages reported as missed."),
    TableColumn("pending_at_end_count", COUNT, "Messages sent so shortly before the end that they may be in flight."),
    TableColumn("unknown_dropped_rows_count", COUNT, "Messages whose delivery may be among missing rows."),
    TableColumn(
        "unknown_clock_count", COUNT, "Messages sent so close to the join that the clocks cannot order the two."
    ),
    TableColumn("findings", pa.list_(FINDING), "Findings per message; see the table `audit_findings`."),
)
SCHEMA = pa.schema([pa.field(each.name, each.type) for each in COLUMNS])

MESSAGE_COLUMNS = ["channel", "author", "sequence", "sent_time", "is_recorded", "run_id", "ordinal"]
DELIVERY_COLUMNS = [
    *("channel", "author", "sequence", "receiver", "delivered_time", "delivery_count", "missed_time", "run_id"),
    *("ordinal", "missed_ordinal"),
]


@dataclass(frozen=True)
class AuditInputs:
    """The inputs that are the same for all authors and receivers."""

    recorded_peers: pa.Table
    """The table of that name, with `grid_column`: which cells of the delivery grid belong to the peer."""
    author_bounds: pa.Table
    """Result of `author_bounds`."""
    dropped_rows: pa.Table
    """channel, run_id, gap_start, gap_end: rows of that run between the two times are missing."""
    settle_s: float
    clock_tolerance_s: float


def author_bounds(authors: pa.Table, held: pa.Table, recorded_peers: pa.Table, settle_s: float) -> pa.Table:
    """Up to which message of each author anything is due.

    `authors` has the time of the last message each author recorded itself (`last_sent_time`), `held` the last message
    that a present peer has. The result has the author's `author_status` (null if it did not record), and whether the
    author was undisturbed: then everything it sent must have arrived.
    """
    peers = frame(recorded_peers).select(
        "channel",
        pl.col("peer").alias("author"),
        pl.col("end_status").alias("author_status"),
        "last_disruption_time",
        pl.col("has_dropped_rows").alias("author_has_dropped_rows"),
    )
    keys = ["channel", "author"]
    both = frame(authors).join(peers, keys, "left").join(frame(held), keys, "left")
    settled = pl.col("last_disruption_time") < pl.col("last_sent_time") - _seconds(settle_s)
    undisturbed = pl.col("last_disruption_time").is_null() | settled.fill_null(False)
    return both.select(
        *keys, "author_status", undisturbed.alias("author_undisturbed"), "held", "author_has_dropped_rows"
    ).to_arrow()


def delivery_balances(rows: pa.Table, inputs: AuditInputs) -> pa.Table:
    """`rows` has messages (no receiver) and deliveries of some cells of the grid."""
    all_rows = frame(rows)
    messages = all_rows.filter(pl.col("receiver").is_null()).sort("channel", "author", "sequence")
    deliveries = all_rows.filter(pl.col("receiver").is_not_null())
    pairs = _pairs(messages, deliveries, inputs)
    if not pairs.height:
        return SCHEMA.empty_table()
    pairs = _with_due_start(pairs, messages, inputs)
    pairs = _with_due_range(_with_due_end(pairs, messages, inputs), deliveries)
    missing = find_missing(pairs, deliveries)
    missing, excused = excused_by_dropped_rows(missing, pairs, deliveries, frame(inputs.dropped_rows))
    findings = pl.concat(
        [_missing(missing, messages), *_delivery_violations(deliveries, messages, pairs)], how="vertical"
    )
    by_pair = findings.group_by(PAIR).agg(pl.struct("finding", "sequence", "event_time", "detail").alias("findings"))
    out = pairs.join(excused, PAIR, "left").join(by_pair, PAIR, "left")
    in_range = pl.max_horizontal(pl.col("range_end") - pl.col("range_start") + 1, 0)
    out = out.with_columns(pl.col("unknown_dropped_rows_count").fill_null(0)).with_columns(
        (in_range - pl.col("unknown_dropped_rows_count")).alias("due_count"), pl.col("findings").fill_null([])
    )
    return to_schema(out, SCHEMA)


def _pairs(messages: pl.DataFrame, deliveries: pl.DataFrame, inputs: AuditInputs) -> pl.DataFrame:
    """Every author with every receiver of the cell, whether or not anything was delivered."""
    authors = messages.group_by("channel", "author", "grid_column").agg(
        pl.col("sequence").max().alias("known"), pl.col("run_id").drop_nulls().first().alias("author_run_id")
    )
    receivers = frame(inputs.recorded_peers).rename({"peer": "receiver"})
    pairs = authors.join(receivers, ["channel", "grid_column"], "inner").filter(pl.col("author") != pl.col("receiver"))
    # An author that got its own message is a violation, so that pair has to be judged too.
    own = deliveries.filter(pl.col("author") == pl.col("receiver")).select("channel", "author", "grid_column").unique()
    own = authors.join(own, ["channel", "author", "grid_column"], "semi").join(
        receivers,
        left_on=["channel", "grid_column", "author"],
        right_on=["channel", "grid_column", "receiver"],
        coalesce=False,
    )
    pairs = pl.concat([pairs, own.select(pairs.columns)]) if own.height else pairs
    return pairs.join(frame(inputs.author_bounds), ["channel", "author"], "left")


def _with_due_start(pairs: pl.DataFrame, messages: pl.DataFrame, inputs: AuditInputs) -> pl.DataFrame:
    """Add `due_start`, the first message surely sent after the join, and `maybe_start`, the first that may be."""
    by = ["channel", "author", "grid_column"]
    same_run = (pl.col("run_id") == pl.col("author_run_id")).fill_null(False)
    tolerance, settle = _seconds(inputs.clock_tolerance_s), _seconds(inputs.settle_s)
    times = messages.select(*by, "sequence", "sent_time").sort("sent_time")
    margin = pl.when(pl.col("author_run_id").is_null()).then(settle).otherwise(tolerance)
    pairs = pairs.with_columns(
        (pl.col("joined_time") + margin).alias("surely_after"), (pl.col("joined_time") - tolerance).alias("maybe_after")
    )
    pairs = _nearest(pairs, times, "surely_after", "sent_time", by, "forward", "start_by_time")
    pairs = _nearest(pairs, times, "maybe_after", "sent_time", by, "forward", "maybe_start")
    ordinals = messages.filter("is_recorded").select(*by, "sequence", "ordinal").sort("ordinal")
    pairs = _nearest(pairs, ordinals, "joined_ordinal", "ordinal", by, "forward", "start_by_ordinal")
    return pairs.with_columns(
        pl.when(same_run).then(pl.col("start_by_ordinal")).otherwise(pl.col("start_by_time")).alias("due_start"),
        pl.when(same_run).then(pl.col("start_by_ordinal")).otherwise(pl.col("maybe_start")).alias("maybe_start"),
    ).drop("surely_after", "maybe_after", "start_by_time", "start_by_ordinal")


def _with_due_end(pairs: pl.DataFrame, messages: pl.DataFrame, inputs: AuditInputs) -> pl.DataFrame:
    """Add `due_end`, the last message that must be there even if no later one of its author is."""
    by = ["channel", "author", "grid_column"]
    settle = _seconds(inputs.settle_s)
    times = messages.select(*by, "sequence", "sent_time").sort("sent_time")
    pairs = pairs.with_columns(
        (pl.col("end_time") - settle).alias("settled_time"),
        (pl.col("last_disruption_time") + settle).alias("undisturbed_time"),
    )
    pairs = _nearest(pairs, times, "settled_time", "sent_time", by, "backward", "due_end")
    pairs = _nearest(pairs, times, "undisturbed_time", "sent_time", by, "backward", "last_disturbed")
    author_complete = (pl.col("author_status") == "present") | (
        (pl.col("author_status") == "left") & pl.col("author_undisturbed")
    )
    limit = pl.when(author_complete.fill_null(False)).then(pl.col("known")).otherwise(pl.col("held").fill_null(0))
    # A receiver that left is due nothing sent before a disruption, or shortly after it.
    disturbed = pl.col("last_disturbed").fill_null(0)
    undisturbed_end = pl.when(pl.col("due_end") > disturbed).then(pl.col("due_end")).otherwise(0)
    return pairs.with_columns(
        limit.alias("limit"),
        pl.when(pl.col("end_status") == "present")
        .then(pl.min_horizontal(pl.col("due_end").fill_null(0), limit))
        .when(pl.col("end_status") == "left")
        .then(undisturbed_end)
        .otherwise(0)
        .fill_null(0)
        .alias("due_end"),
        pl.when(pl.col("end_status") == "left").then(disturbed + 1).otherwise(1).alias("undisturbed_start"),
    ).drop("settled_time", "undisturbed_time", "last_disturbed")


def _with_due_range(pairs: pl.DataFrame, deliveries: pl.DataFrame) -> pl.DataFrame:
    """Add `range_start` and `range_end`, between which everything must be there, and how much of it is."""
    is_delivered = pl.col("delivery_count") > 0
    known = deliveries.filter(is_delivered | pl.col("missed_time").is_not_null())
    counts = known.group_by(PAIR).agg(
        pl.col("sequence").min().alias("first_held"),
        pl.col("sequence").max().alias("last_held"),
        is_delivered.sum().cast(pl.Int64).alias("delivered_count"),
        (~is_delivered & pl.col("missed_time").is_not_null()).sum().cast(pl.Int64).alias("missed_count"),
    )
    pairs = pairs.join(counts, PAIR, "left").with_columns(pl.col("delivered_count", "missed_count").fill_null(0))
    own = pl.col("author") == pl.col("receiver")
    pairs = pairs.with_columns(
        pl.min_horizontal("first_held", "due_start").alias("range_start"),
        pl.max_horizontal(pl.col("last_held").fill_null(0), "due_end").alias("range_end"),
    )
    # How many earlier messages may have been due.
    unclear = pl.max_horizontal(pl.col("range_start") - pl.col("maybe_start"), 0).fill_null(0)
    pairs = pairs.with_columns(unclear.alias("unclear"))
    # A receiver that left without any message is due only what was sent while nothing was disrupted.
    pairs = pairs.with_columns(
        pl.when(pl.col("first_held").is_null() & pl.col("due_start").is_not_null())
        .then(pl.max_horizontal("range_start", "undisturbed_start"))
        .otherwise(pl.col("range_start"))
        .alias("range_start")
    )
    is_empty = pl.col("range_start").is_null() | own
    pairs = pairs.with_columns(
        pl.when(is_empty).then(1).otherwise(pl.col("range_start")).alias("range_start"),
        pl.when(is_empty).then(0).otherwise(pl.col("range_end")).alias("range_end"),
    )
    in_flight = pl.min_horizontal("known", "limit") - pl.max_horizontal("range_end", pl.col("range_start") - 1)
    return pairs.with_columns(
        pl.when((pl.col("end_status") == "present") & pl.col("due_start").is_not_null() & ~own)
        .then(pl.max_horizontal(in_flight, 0))
        .otherwise(0)
        .alias("pending_at_end_count"),
        pl.when(own | pl.col("maybe_start").is_null() | pl.col("due_start").is_null())
        .then(0)
        .otherwise(pl.col("unclear"))
        .alias("unknown_clock_count"),
    )


def _nearest(
    left: pl.DataFrame, right: pl.DataFrame, on: str, other: str, by: list[str], strategy: str, name: str
) -> pl.DataFrame:
    """Add `name`: the sequence number of the nearest row of `right`."""
    right = right.select(*by, pl.col(other).alias("_on"), pl.col("sequence").alias(name))
    joined = left.sort(on).join_asof(
        right,
        left_on=on,
        right_on="_on",
        by=by,
        strategy="forward" if strategy == "forward" else "backward",
        coalesce=False,
        check_sortedness=False,
    )
    return joined.drop("_on")


def _seconds(seconds: float) -> pl.Expr:
    return pl.duration(microseconds=int(seconds * 1e6))


def _missing(missing: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    sent = messages.select("channel", "author", "sequence", pl.col("sent_time").alias("event_time")).unique(
        ["channel", "author", "sequence"], keep="any"
    )
    return missing.join(sent, ["channel", "author", "sequence"], "left").select(
        *PAIR,
        pl.lit("missing").alias("finding"),
        "sequence",
        "event_time",
        pl.format("never delivered, though the receiver has {} to {} of this author", "first_held", "last_held")
        .fill_null("never delivered, nor was any other message of this author")
        .alias("detail"),
    )


def _delivery_violations(deliveries: pl.DataFrame, messages: pl.DataFrame, pairs: pl.DataFrame) -> list[pl.DataFrame]:
    delivered = deliveries.filter(pl.col("delivery_count") > 0)
    membership = pairs.select(
        *PAIR, "first_link_ordinal", "left_ordinal", "has_dropped_rows", pl.col("run_id").alias("receiver_run_id")
    )
    placed = delivered.join(membership, PAIR, "inner")
    comparable = (pl.col("run_id") == pl.col("receiver_run_id")) & ~pl.col("has_dropped_rows")
    early = comparable & (pl.col("ordinal") < pl.col("first_link_ordinal"))
    late = comparable & (pl.col("ordinal") > pl.col("left_ordinal"))
    ordered = delivered.sort("ordinal").with_columns(pl.col("sequence").cum_max().over(PAIR).alias("highest"))
    is_missed = (pl.col("delivery_count") == 0) & pl.col("missed_time").is_not_null()
    return [
        _as_findings(
            delivered.filter(pl.col("delivery_count") > 1),
            "duplicate",
            pl.format("delivered {} times", "delivery_count"),
        ),
        _as_findings(
            ordered.filter(pl.col("highest") > pl.col("sequence")),
            "out_of_order",
            pl.format("delivered after {} of the same author", "highest"),
        ),
        _as_findings(
            delivered.filter(pl.col("missed_ordinal") < pl.col("ordinal")),
            "out_of_order",
            pl.lit("delivered after it was reported as missed"),
        ),
        _as_findings(
            placed.filter(early.fill_null(False)),
            "receiver_not_member",
            pl.lit("delivered before the receiver had a link"),
        ),
        _as_findings(
            placed.filter(late.fill_null(False)),
            "receiver_not_member",
            pl.lit("delivered after the receiver had left"),
        ),
        _as_findings(
            delivered.filter(pl.col("author") == pl.col("receiver")),
            "delivered_to_author",
            pl.lit("delivered to its own author"),
        ),
        _never_sent(delivered, messages, pairs),
        _as_findings(
            deliveries.filter(is_missed),
            "reported_missed",
            pl.lit("not delivered, and reported as missed to the application"),
            time="missed_time",
        ),
    ]


def _never_sent(delivered: pl.DataFrame, messages: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Deliveries of messages that their author did not record, though it recorded later ones or left gracefully, and
    none of its rows is missing."""
    keys = ["channel", "author"]
    unrecorded = messages.filter(~pl.col("is_recorded")).select(*keys, "sequence", "grid_column")
    last = messages.filter("is_recorded").group_by(keys).agg(pl.col("sequence").max().alias("last_recorded"))
    complete = pairs.filter(pl.col("author_status").is_not_null() & ~pl.col("author_has_dropped_rows").fill_null(False))
    complete = complete.select(*keys, "author_status").unique().join(last, keys, "left")
    never_sent = unrecorded.join(complete, keys, "inner").filter(
        (pl.col("sequence") < pl.col("last_recorded").fill_null(0)) | (pl.col("author_status") == "left")
    )
    return _as_findings(
        delivered.join(never_sent, [*keys, "sequence", "grid_column"], "semi"),
        "never_sent",
        pl.lit("delivered, but its author recorded no such message"),
    )


def _as_findings(rows: pl.DataFrame, finding: str, detail: pl.Expr, time: str = "delivered_time") -> pl.DataFrame:
    return rows.select(
        *PAIR, pl.lit(finding).alias("finding"), "sequence", pl.col(time).alias("event_time"), detail.alias("detail")
    )
