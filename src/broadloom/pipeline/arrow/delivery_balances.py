"""What each member was owed of each author, what it got, and what is wrong with that. The heart of the audit.

A member is owed what was sent from its joining on. Up to the last message that it had of an author, everything has to
be there, since order is kept. Beyond that, a message is owed

- to a member that is there to the end, if it was sent `settle_s` before the end. Of an author that did not stay, as far
  as any member that stayed has its messages: what a dying author said may have reached nobody that lives;
- to one that left in good order, if it was sent `settle_s` before that and nobody had lost a link since then, or soon
  before or after;
- not to one that died: a message on its way to it was never late.

Nobody is accused of what may stand in rows that the recorder lost, or that were set aside, or of what the clocks of two
machines leave open. That is counted instead (`unjudged_...`). Within one run order goes by ordinals alone.
"""

from dataclasses import dataclass

import polars as pl

from broadloom.pipeline.arrow.exact import frame, to_schema
from broadloom.pipeline.arrow.suspects import excused_by_dropped_rows, find_missing
from broadloom.pipeline.table import COUNT, ID, TEXT, TIME, TableColumn
from broadloom.record.arrow_import import pa

FINDING = pa.struct(
    [pa.field("finding", TEXT), pa.field("sequence", COUNT), pa.field("time", TIME), pa.field("detail", TEXT)]
)

COLUMNS = (
    TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
    TableColumn("author", ID, "Who said it."),
    TableColumn("member", ID, "To whom it was owed."),
    TableColumn("owed", COUNT, "Messages that it was owed, and of which it can be judged whether it got them."),
    TableColumn("delivered", COUNT, "Messages that it got, owed or not."),
    TableColumn("missed", COUNT, "Messages that it was told it will not get."),
    TableColumn("unjudged_end", COUNT, "Messages sent so shortly before the tapes end that they may be on their way."),
    TableColumn("unjudged_gap", COUNT, "Messages whose delivery may be among rows that are lacking."),
    TableColumn(
        "unjudged_clock", COUNT, "Messages sent so close to its joining that the clocks cannot tell which was first."
    ),
    TableColumn("findings", pa.list_(FINDING), "What is wrong, message by message; see the table audit."),
)
SCHEMA = pa.schema([pa.field(each.name, each.type) for each in COLUMNS])

PAIR = ["channel", "author", "member"]
MESSAGE_COLUMNS = ["channel", "author", "sequence", "time", "recorded", "run", "ordinal"]
DELIVERY_COLUMNS = [
    *("channel", "author", "sequence", "receiver", "delivered", "copies", "missed", "run", "ordinal", "missed_ordinal"),
]


@dataclass(frozen=True)
class AuditInputs:
    """The same for all authors and members."""

    recorded_peers: pa.Table
    """The table members, with `column`: which cells of the grid are its."""
    author_bounds: pa.Table
    """As `limits` makes it."""
    dropped_rows: pa.Table
    """channel, run, begin, end: rows of that run, seen between the two, are lacking."""
    settle_s: float
    clock_tolerance_s: float


def author_bounds(authors: pa.Table, held: pa.Table, recorded_peers: pa.Table, settle_s: float) -> pa.Table:
    """Up to where each author's messages are owed at all.

    `authors` has the time of the last message that each noted itself (`last`), `held` the last that a present member
    has. The answer tells how the author ended (`status`, null if it did not record), and whether in peace: then all
    that it said must have been heard.
    """
    who = frame(recorded_peers).select(
        "channel",
        pl.col("peer").alias("author"),
        pl.col("ending").alias("status"),
        "torn",
        pl.col("lacking").alias("author_lacking"),
    )
    keys = ["channel", "author"]
    both = frame(authors).join(who, keys, "left").join(frame(held), keys, "left")
    calm = pl.col("torn") < pl.col("last") - pl.duration(microseconds=int(settle_s * 1e6))
    in_peace = pl.col("torn").is_null() | calm.fill_null(False)
    return both.select(*keys, "status", in_peace.alias("in_peace"), "held", "author_lacking").to_arrow()


def delivery_balances(rows: pa.Table, inputs: AuditInputs) -> pa.Table:
    """`rows` has messages (no receiver) and deliveries of cells of the grid; `column` says in which cell of its row."""
    got = frame(rows)
    said = got.filter(pl.col("receiver").is_null()).sort("channel", "author", "sequence")
    had = got.filter(pl.col("receiver").is_not_null()).rename({"receiver": "member"})
    pairs = _pairs(said, had, inputs)
    if not pairs.height:
        return SCHEMA.empty_table()
    pairs = _with_range(_with_ends(_with_begin(pairs, said, inputs), said, inputs), had)
    lacking = find_missing(pairs, had)
    lacking, excuses = excused_by_dropped_rows(lacking, pairs, had, frame(inputs.dropped_rows))
    findings = pl.concat([_missing(lacking, said), *_delivery_violations(had, said, pairs)], how="vertical")
    by_pair = findings.group_by(PAIR).agg(pl.struct("finding", "sequence", "time", "detail").alias("findings"))
    out = pairs.join(excuses, PAIR, "left").join(by_pair, PAIR, "left")
    out = out.with_columns(pl.col("unjudged_gap").fill_null(0)).with_columns(
        (pl.max_horizontal(pl.col("to") - pl.col("from") + 1, 0) - pl.col("unjudged_gap")).alias("owed"),
        pl.col("findings").fill_null([]),
    )
    return to_schema(out, SCHEMA)


def _pairs(messages: pl.DataFrame, deliveries: pl.DataFrame, inputs: AuditInputs) -> pl.DataFrame:
    """Every author with every member of the cell, whether or not anything was delivered."""
    authors = messages.group_by("channel", "author", "column").agg(
        pl.col("sequence").max().alias("known"), pl.col("run").drop_nulls().first().alias("author_run")
    )
    members = frame(inputs.recorded_peers).rename({"peer": "member"})
    pairs = authors.join(members, ["channel", "column"], "inner").filter(pl.col("author") != pl.col("member"))
    # A member may have been given its own message: that is wrong, so it has to be judged.
    own = deliveries.filter(pl.col("author") == pl.col("member")).select("channel", "author", "column").unique()
    own = authors.join(own, ["channel", "author", "column"], "semi").join(
        members, left_on=["channel", "column", "author"], right_on=["channel", "column", "member"], coalesce=False
    )
    pairs = pl.concat([pairs, own.select(pairs.columns)]) if own.height else pairs
    return pairs.join(frame(inputs.author_bounds), ["channel", "author"], "left")


def _with_begin(pairs: pl.DataFrame, messages: pl.DataFrame, inputs: AuditInputs) -> pl.DataFrame:
    """`begin`: the first message that was surely sent after the joining; `perhaps`: the first that may have been."""
    by = ["channel", "author"]
    same_run = (pl.col("run") == pl.col("author_run")).fill_null(False)
    clock = pl.duration(microseconds=int(inputs.clock_tolerance_s * 1e6))
    settle = pl.duration(microseconds=int(inputs.settle_s * 1e6))
    times = messages.select(*by, "column", "sequence", "time", "recorded").sort("time")
    pairs = pairs.with_columns(
        (pl.col("joined") + pl.when(pl.col("author_run").is_null()).then(settle).otherwise(clock)).alias("surely"),
    )
    by = [*by, "column"]
    surely = _asof(pairs, times, "surely", "time", by, "forward", "begin_time")
    perhaps = _asof(
        surely.with_columns((pl.col("joined") - clock).alias("early")), times, "early", "time", by, "forward", "perhaps"
    )
    ordinals = messages.filter("recorded").select(*by, "sequence", "ordinal").sort("ordinal")
    exactly = _asof(perhaps, ordinals, "joined_ordinal", "ordinal", by, "forward", "begin_ordinal")
    return exactly.with_columns(
        pl.when(same_run).then(pl.col("begin_ordinal")).otherwise(pl.col("begin_time")).alias("begin"),
        pl.when(same_run).then(pl.col("begin_ordinal")).otherwise(pl.col("perhaps")).alias("perhaps"),
    ).drop("surely", "early", "begin_time", "begin_ordinal")


def _with_ends(pairs: pl.DataFrame, messages: pl.DataFrame, inputs: AuditInputs) -> pl.DataFrame:
    """`end`: the last message that has to be there even if nothing later of its author is."""
    by = ["channel", "author", "column"]
    settle = pl.duration(microseconds=int(inputs.settle_s * 1e6))
    times = messages.select(*by, "sequence", "time").sort("time")
    pairs = _asof(
        pairs.with_columns((pl.col("until") - settle).alias("settled")), times, "settled", "time", by, "backward", "end"
    )
    torn = pairs.with_columns((pl.col("torn") + settle).alias("calm"))
    pairs = _asof(torn, times, "calm", "time", by, "backward", "last_torn")
    answerable = (pl.col("status") == "present") | ((pl.col("status") == "left") & pl.col("in_peace"))
    limit = pl.when(answerable.fill_null(False)).then(pl.col("known")).otherwise(pl.col("held").fill_null(0))
    # After a tear nothing that was sent before it, or soon after, counts for one that left.
    in_peace = pl.when(pl.col("end") > pl.col("last_torn").fill_null(0)).then(pl.col("end")).otherwise(0)
    return pairs.with_columns(
        limit.alias("limit"),
        pl.when(pl.col("ending") == "present")
        .then(pl.min_horizontal(pl.col("end").fill_null(0), limit))
        .when(pl.col("ending") == "left")
        .then(in_peace)
        .otherwise(0)
        .fill_null(0)
        .alias("end"),
        pl.when(pl.col("ending") == "left").then(pl.col("last_torn").fill_null(0) + 1).otherwise(1).alias("calm_from"),
    ).drop("settled", "calm", "last_torn")


def _with_range(pairs: pl.DataFrame, deliveries: pl.DataFrame) -> pl.DataFrame:
    """`from` and `to`: what has to be there without a break; and how much of it was had."""
    told = deliveries.filter((pl.col("copies") > 0) | pl.col("missed").is_not_null())
    counts = told.group_by(PAIR).agg(
        pl.col("sequence").min().alias("first"),
        pl.col("sequence").max().alias("final"),
        (pl.col("copies") > 0).sum().cast(pl.Int64).alias("delivered"),
        ((pl.col("copies") == 0) & pl.col("missed").is_not_null()).sum().cast(pl.Int64).alias("missed"),
    )
    pairs = pairs.join(counts, PAIR, "left").with_columns(pl.col("delivered", "missed").fill_null(0))
    own = pl.col("author") == pl.col("member")
    pairs = pairs.with_columns(
        pl.min_horizontal("first", "begin").alias("from"),
        pl.max_horizontal(pl.col("final").fill_null(0), "end").alias("to"),
    )
    # How far back it may have been owed more than can be told.
    pairs = pairs.with_columns(pl.max_horizontal(pl.col("from") - pl.col("perhaps"), 0).fill_null(0).alias("unclear"))
    # With nothing had, one that left is owed only what was sent in calm times.
    pairs = pairs.with_columns(
        pl.when(pl.col("first").is_null() & pl.col("begin").is_not_null())
        .then(pl.max_horizontal("from", "calm_from"))
        .otherwise(pl.col("from"))
        .alias("from")
    )
    pairs = pairs.with_columns(
        pl.when(pl.col("from").is_null() | own).then(1).otherwise(pl.col("from")).alias("from"),
        pl.when(pl.col("from").is_null() | own).then(0).otherwise(pl.col("to")).alias("to"),
    )
    there = pl.col("ending") == "present"
    return pairs.with_columns(
        pl.when(there & pl.col("begin").is_not_null() & ~own)
        .then(pl.max_horizontal(pl.min_horizontal("known", "limit") - pl.max_horizontal("to", pl.col("from") - 1), 0))
        .otherwise(0)
        .alias("unjudged_end"),
        pl.when(own | pl.col("perhaps").is_null() | pl.col("begin").is_null())
        .then(0)
        .otherwise(pl.col("unclear"))
        .alias("unjudged_clock"),
    )


def _asof(
    left: pl.DataFrame, right: pl.DataFrame, on: str, other: str, by: list[str], strategy: str, name: str
) -> pl.DataFrame:
    """`name`: the sequence of the nearest row of `right`."""
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


def _missing(missing: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    sent = messages.select("channel", "author", "sequence", "time").unique(
        ["channel", "author", "sequence"], keep="any"
    )
    return missing.join(sent, ["channel", "author", "sequence"], "left").select(
        *PAIR,
        pl.lit("missing").alias("finding"),
        "sequence",
        "time",
        pl.format("never delivered, though it had {} to {} of this author", "first", "final")
        .fill_null("never delivered, nor was anything else of this author")
        .alias("detail"),
    )


def _delivery_violations(deliveries: pl.DataFrame, messages: pl.DataFrame, pairs: pl.DataFrame) -> list[pl.DataFrame]:
    """What is wrong with what was delivered."""
    got = deliveries.filter(pl.col("copies") > 0)
    then = pairs.select(*PAIR, "present_ordinal", "left_ordinal", "lacking", pl.col("run").alias("member_run"))
    placed = got.join(then, PAIR, "inner")
    same = pl.col("run") == pl.col("member_run")
    early = same & (pl.col("ordinal") < pl.col("present_ordinal")) & ~pl.col("lacking")
    late = same & (pl.col("ordinal") > pl.col("left_ordinal")) & ~pl.col("lacking")
    order = got.sort("ordinal").with_columns(pl.col("sequence").cum_max().over(PAIR).alias("highest"))
    return [
        _as_findings(got.filter(pl.col("copies") > 1), "double", pl.format("delivered {} times", "copies")),
        _as_findings(
            order.filter(pl.col("highest") > pl.col("sequence")),
            "out_of_order",
            pl.format("delivered after {} of the same author", "highest"),
        ),
        _as_findings(
            got.filter(pl.col("missed_ordinal") < pl.col("ordinal")),
            "out_of_order",
            pl.lit("delivered after it was told that it missed it"),
        ),
        _as_findings(
            placed.filter(early.fill_null(False)), "not_present", pl.lit("delivered before it had a link to anybody")
        ),
        _as_findings(placed.filter(late.fill_null(False)), "not_present", pl.lit("delivered after it had left")),
        _as_findings(got.filter(pl.col("author") == pl.col("member")), "own", pl.lit("delivered to its own author")),
        _never_sent(got, messages, pairs),
        _as_findings(
            deliveries.filter((pl.col("copies") == 0) & pl.col("missed").is_not_null()),
            "missed_reported",
            pl.lit("not delivered, and the application was told so"),
            time="missed",
        ),
    ]


def _never_sent(delivered: pl.DataFrame, messages: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Delivered, but its author, none of whose rows is lacking, noted no such sending, only later ones; or it left."""
    unknown = messages.filter(~pl.col("recorded")).select("channel", "author", "sequence", "column")
    last = (
        messages.filter("recorded").group_by("channel", "author").agg(pl.col("sequence").max().alias("last_recorded"))
    )
    whole = pairs.filter(pl.col("status").is_not_null() & ~pl.col("author_lacking").fill_null(False))
    whole = whole.select("channel", "author", "status").unique().join(last, ["channel", "author"], "left")
    odd = unknown.join(whole, ["channel", "author"], "inner").filter(
        (pl.col("sequence") < pl.col("last_recorded").fill_null(0)) | (pl.col("status") == "left")
    )
    return _as_findings(
        delivered.join(odd, ["channel", "author", "sequence", "column"], "semi"),
        "never_sent",
        pl.lit("delivered, but its author noted no such message"),
    )


def _as_findings(rows: pl.DataFrame, finding: str, detail: pl.Expr, time: str = "delivered") -> pl.DataFrame:
    return rows.select(
        *PAIR, pl.lit(finding).alias("finding"), "sequence", pl.col(time).alias("time"), detail.alias("detail")
    )
