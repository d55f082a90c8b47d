"""Which messages were due to each receiver, which arrived, and what is wrong with that. The core of the audit.

A receiver is due everything sent after it joined. Up to the last message it has from an author, everything must be
there, because delivery is in order. Beyond that, a message is due

- to a receiver that is present at the end, if it was sent `settle_s` before the end, and the fabric was settled for
  that long. If its author did not stay, only as far as any present peer has its messages: the last messages of a
  crashed author may have reached no survivor;
- to a receiver that left gracefully, if it was sent `settle_s` before that and no peer lost a link since then, or
  shortly before or after;
- not to a receiver that crashed: a message on its way to it was not late.

While a partition or a repair delays messages, those that are not delivered yet wait for it and are counted
(`unsettled_count`), by the rule that live checks use (`testing/checks/settling.py`).

A delivery that may be hidden in rows that the recorder dropped or that are quarantined is not judged, and neither is
one that the clocks of two machines leave open. These are counted instead (`unknown_...`). Within one run, only ordinals
define the order. Otherwise times are by one clock (`analysis/channel_clock.py`), with an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from broadloom.pipeline.analysis.frames import from_rows, seconds
from broadloom.pipeline.analysis.suspects import (
    PAIR,
    excused_by_dropped_rows,
    explained_by_forged,
    find_missing,
    misplaced,
)
from broadloom.pipeline.engine.events import plain
from broadloom.pipeline.table import CHANNEL, COUNT, TEXT, Stage, Table, TableSetting, column
from broadloom.pipeline.tables.deliveries import last_missed
from broadloom.pipeline.tables.fabric_snapshots import DEGREE
from broadloom.pipeline.tables.recorded_peers import SETTLE
from broadloom.record.arrow_import import pa
from broadloom.record.schema import TIME

CLOCK_TOLERANCE = TableSetting(
    "clock_tolerance_s",
    0.5,
    "How far the clocks of two machines may differ, beyond what `clock_offsets` corrects. Events closer together than "
    "that are not ordered by time.",
)

FINDING = pa.struct(
    [pa.field("finding", TEXT), pa.field("sequence", COUNT), pa.field("event_time", TIME), pa.field("detail", TEXT)]
)

COLUMNS = (
    CHANNEL,
    column("author", "Author of the messages."),
    column("receiver", "Peer they were due to."),
    column("due_count", "Messages that were due and can be judged."),
    column("delivered_count", "Messages delivered, due or not."),
    column("missed_count", "Messages reported as missed."),
    column(
        "pending_at_end_count",
        "Messages sent so shortly before the end of the tapes, the receiver or the author that they may have been in "
        "flight.",
    ),
    column("unsettled_count", "Messages that wait for a partition or a repair to end."),
    column("unknown_dropped_rows_count", "Messages whose delivery may be among missing rows."),
    column("unknown_clock_count", "Messages sent so close to the join that the clocks cannot order the two."),
    column("findings", "Findings per message; see the table `audit_findings`.", pa.list_(FINDING)),
)

MESSAGE_COLUMNS = ["author", "sequence", "sent_time", "is_recorded", "run_id", "ordinal", "size_bytes"]
DELIVERY_COLUMNS = [
    *("author", "sequence", "receiver", "delivered_time", "delivery_count", "missed_time", "run_id"),
    *("ordinal", "missed_ordinal", "again_ordinal", "again_hops", "hops", "size_bytes"),
]


@dataclass(frozen=True)
class AuditInputs:
    """The inputs that are the same for all parts of a channel."""

    messages: pl.DataFrame
    """`MESSAGE_COLUMNS` of all messages of the channel."""
    recorded_peers: pl.DataFrame
    """With `own_joined_time`, by the peer's own clock."""
    author_bounds: pl.DataFrame
    """Result of `author_bounds`."""
    dropped_rows: pl.DataFrame
    """Result of `missing_rows`, and the end of each gap by the clock of the channel (`common_end`)."""
    settle_s: float
    clock_tolerance_s: float
    clock_errors_us: Mapping[str, float]
    """Largest error of the times of each run."""
    end_time: datetime
    """The last event on the tapes."""
    settled_time: datetime | None
    """Since when the fabric is settled; None if it is not."""

    @property
    def clock_error_s(self) -> float:
        return max(self.clock_errors_us.values(), default=0.0) / 1e6


def author_bounds(
    messages: pl.DataFrame,
    held: pl.DataFrame,
    missed: pl.DataFrame,
    recorded_peers: pl.DataFrame,
    settle_s: float,
) -> pl.DataFrame:
    """Up to which message of each author anything is due.

    `held` has the last message of each author that each peer has, `missed` the reports of missed messages. The result
    has the last message that a present peer has (`held`), the author's `author_status` (null if it did not record), and
    whether the author was undisturbed: then everything it sent must have arrived.
    """
    present = recorded_peers.filter(pl.col("end_status") == "present").select("peer")
    known = messages.group_by("author").agg(known=pl.col("sequence").max())
    reported = missed.join(known, on="author", how="left").select("author", "peer", held=last_missed())
    # A forged number says nothing about what the peer has.
    genuine = held.join(messages, left_on=["author", "held"], right_on=["author", "sequence"], how="semi")
    last_held = pl.concat([genuine.select("author", "peer", "held"), reported]).join(present, on="peer", how="semi")
    last_held = last_held.group_by("author").agg(pl.col("held").max())
    authors = messages.group_by("author").agg(last_sent_time=pl.col("sent_time").filter("is_recorded").max())
    peers = recorded_peers.select(
        "last_disruption_time",
        author="peer",
        author_status="end_status",
        author_has_dropped_rows="has_dropped_rows",
    )
    both = authors.join(peers, on="author", how="left").join(last_held, on="author", how="left")
    settled = pl.col("last_disruption_time") < pl.col("last_sent_time") - seconds(settle_s)
    undisturbed = pl.col("last_disruption_time").is_null() | settled.fill_null(False)
    return both.select(
        "author", "author_status", undisturbed.alias("author_undisturbed"), "held", "author_has_dropped_rows"
    )


def delivery_balances(
    deliveries: pl.DataFrame, forged: pl.DataFrame, receivers: pl.Series, inputs: AuditInputs
) -> pl.DataFrame:
    """One row per author and receiver of a part.

    `deliveries` are those of the part, sorted by author, receiver and sequence, without the `forged` rows; `receivers`
    are all its peers. Counts
    show which pairs may have a finding; only their deliveries are looked at one by one.
    """
    messages = inputs.messages
    counts = _counts(deliveries)
    pairs = _pairs(messages, counts, receivers, inputs)
    if not pairs.height:
        return from_rows([], COLUMNS)
    pairs = _with_due_range(_with_due_end(_with_due_start(pairs, messages, inputs), messages, inputs), counts)
    suspects = _suspects(pairs, counts)
    ids = counts.join(suspects, on=PAIR, how="semi")["pair"]
    rows = plain(deliveries.filter(pl.col("pair").is_in(ids.implode())).select(DELIVERY_COLUMNS))
    suspected = pairs.join(suspects, on=PAIR, how="semi")
    missing = find_missing(suspected, rows)
    missing, excused = excused_by_dropped_rows(missing, rows, messages, inputs.dropped_rows, inputs.clock_tolerance_s)
    violations = pl.concat(_delivery_violations(rows, suspected), how="vertical")
    missing, violations, explained = explained_by_forged(missing, violations, rows, forged, messages)
    excused = pl.concat([excused, explained]).group_by(PAIR).agg(pl.col("unknown_dropped_rows_count").sum())
    findings = pl.concat([_missing(missing, messages), violations], how="vertical")
    by_pair = findings.group_by(PAIR).agg(pl.struct("finding", "sequence", "event_time", "detail").alias("findings"))
    out = pairs.join(excused, PAIR, "left").join(by_pair, PAIR, "left")
    in_range = pl.max_horizontal(pl.col("range_end") - pl.col("range_start") + 1, 0)
    return out.with_columns(pl.col("unknown_dropped_rows_count").fill_null(0)).with_columns(
        (in_range - pl.col("unknown_dropped_rows_count")).alias("due_count"), pl.col("findings").fill_null([])
    )


def _counts(deliveries: pl.DataFrame) -> pl.DataFrame:
    """For each author and receiver: how much is there, and whether anything about it is unusual."""
    is_delivered, is_missed = pl.col("delivery_count") > 0, pl.col("missed_time").is_not_null()
    ordinal = pl.when(is_delivered).then("ordinal")
    same_pair = pl.col("pair") == pl.col("pair").shift(1)
    is_unusual = (
        (same_pair & (ordinal < ordinal.forward_fill().shift(1))).fill_null(False)
        | (pl.col("delivery_count") > 1)
        | (pl.col("missed_ordinal") < pl.col("ordinal")).fill_null(False)
        | (~is_delivered & is_missed)
    )
    flags = deliveries.select(
        "pair", "sequence", ordinal, is_known=is_delivered | is_missed, is_delivered=is_delivered, is_unusual=is_unusual
    )
    known = pl.col("sequence").filter("is_known")
    counts = flags.group_by("pair", maintain_order=True).agg(
        first_held=known.min(),
        last_held=known.max(),
        delivered_count=pl.col("is_delivered").sum().cast(pl.Int64),
        missed_count=(pl.col("is_known") & ~pl.col("is_delivered")).sum().cast(pl.Int64),
        is_unusual=pl.col("is_unusual").any(),
        first_ordinal=pl.col("ordinal").min(),
        last_ordinal=pl.col("ordinal").max(),
    )
    names = deliveries.select("pair", "author", "receiver").unique("pair", keep="any")
    return counts.join(plain(names), on="pair")


def _suspects(pairs: pl.DataFrame, counts: pl.DataFrame) -> pl.DataFrame:
    """Pairs that may have a finding."""
    due = pl.col("range_end") - pl.col("range_start") + 1
    is_short = (due > 0) & (pl.col("delivered_count") + pl.col("missed_count") < due)
    placed = counts.join(pairs.select(*PAIR, "first_link_ordinal", "left_ordinal"), on=PAIR)
    is_misplaced = (pl.col("first_ordinal") < pl.col("first_link_ordinal")).fill_null(False) | (
        pl.col("last_ordinal") > pl.col("left_ordinal")
    ).fill_null(False)
    return pl.concat(
        [
            pairs.filter(is_short | (pl.col("author") == pl.col("receiver"))).select(PAIR),
            counts.filter("is_unusual").select(PAIR),
            placed.filter(is_misplaced).select(PAIR),
        ]
    ).unique()


def _pairs(messages: pl.DataFrame, counts: pl.DataFrame, receivers: pl.Series, inputs: AuditInputs) -> pl.DataFrame:
    """Every author with every receiver, whether or not anything was delivered."""
    authors = messages.group_by("author").agg(
        known=pl.col("sequence").max(), author_run_id=pl.col("run_id").drop_nulls().first()
    )
    peers = inputs.recorded_peers.filter(pl.col("peer").is_in(receivers.implode())).rename({"peer": "receiver"})
    # An author that got its own message is a violation, so that pair has to be judged too.
    own = counts.filter(pl.col("author") == pl.col("receiver")).select("author", "receiver")
    pairs = _with_clock_error(authors.join(peers, how="cross"), inputs)
    is_own = pl.col("author") == pl.col("receiver")
    pairs = pl.concat([pairs.filter(~is_own), pairs.filter(is_own).join(own, on=PAIR, how="semi")])
    return pairs.join(inputs.author_bounds, on="author", how="left")


def _with_clock_error(pairs: pl.DataFrame, inputs: AuditInputs) -> pl.DataFrame:
    """Add `clock_error`: how wrong the time between an event of the author and one of the receiver may be."""
    # An author without a tape is known from any run.
    errors = [
        pl.col(run).replace_strict(inputs.clock_errors_us, default=default, return_dtype=pl.Float64)
        for run, default in (("run_id", 0.0), ("author_run_id", 1e6 * inputs.clock_error_s))
    ]
    return pairs.with_columns(clock_error=pl.duration(microseconds=(errors[0] + errors[1]).ceil().cast(pl.Int64)))


def _with_due_start(pairs: pl.DataFrame, messages: pl.DataFrame, inputs: AuditInputs) -> pl.DataFrame:
    """Add `due_start`, the first message surely sent after the join, and `maybe_start`, the first that may be."""
    by = ["author"]
    same_run = (pl.col("run_id") == pl.col("author_run_id")).fill_null(False)
    tolerance, settle = seconds(inputs.clock_tolerance_s), seconds(inputs.settle_s)
    times = messages.select(*by, "sequence", "sent_time").sort("sent_time")
    margin = pl.when(pl.col("author_run_id").is_null()).then(settle).otherwise(tolerance)
    pairs = pairs.with_columns(
        (pl.col("joined_time") + margin + pl.col("clock_error")).alias("surely_after"),
        (pl.col("joined_time") - tolerance - pl.col("clock_error")).alias("maybe_after"),
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
    by = ["author"]
    settle = seconds(inputs.settle_s)
    times = messages.select(*by, "sequence", "sent_time").sort("sent_time")
    pairs = pairs.with_columns(
        (pl.col("end_time") - settle - pl.col("clock_error")).alias("settled_time"),
        (pl.col("last_disruption_time") + settle + seconds(2 * inputs.clock_error_s)).alias("undisturbed_time"),
    )
    pairs = _nearest(pairs, times, "settled_time", "sent_time", by, "backward", "due_end")
    pairs = _nearest(pairs, times, "undisturbed_time", "sent_time", by, "backward", "last_disturbed")
    pairs = _nearest(pairs, times, "end_time", "sent_time", by, "backward", "last_sent")
    author_complete = (pl.col("author_status") == "present") | (
        (pl.col("author_status") == "left") & pl.col("author_undisturbed")
    )
    limit = pl.when(author_complete.fill_null(False)).then(pl.col("known")).otherwise(pl.col("held").fill_null(0))
    # A receiver that left is due nothing sent before a disruption, or shortly after it.
    disturbed = pl.col("last_disturbed").fill_null(0)
    undisturbed_end = pl.when(pl.col("due_end") > disturbed).then(pl.col("due_end")).otherwise(0)
    is_present = pl.col("end_status") == "present"
    present_end = pl.min_horizontal(pl.col("due_end").fill_null(0), limit)
    is_settled = pl.col("end_time") >= pl.lit(inputs.settled_time, pairs.schema["end_time"]) + settle
    is_settled = is_settled.fill_null(False)
    # What a receiver lacks whose recording ended earlier is not decided by later events.
    is_waiting = is_present & ~is_settled & (pl.col("end_time") >= pl.lit(inputs.end_time) - settle)
    return pairs.with_columns(
        limit.alias("limit"),
        pl.when(is_waiting).then(present_end).otherwise(0).alias("waiting_end"),
        pl.when(is_present & is_settled)
        .then(present_end)
        .when(pl.col("end_status") == "left")
        .then(undisturbed_end)
        .otherwise(0)
        .fill_null(0)
        .alias("due_end"),
        pl.when(pl.col("end_status") == "left").then(disturbed + 1).otherwise(1).alias("undisturbed_start"),
    ).drop("settled_time", "undisturbed_time", "last_disturbed")


def _with_due_range(pairs: pl.DataFrame, counts: pl.DataFrame) -> pl.DataFrame:
    """Add `range_start` and `range_end`, between which everything must be there, and how much of it is."""
    held = counts.select(*PAIR, "first_held", "last_held", "delivered_count", "missed_count")
    pairs = pairs.join(held, PAIR, "left").with_columns(pl.col("delivered_count", "missed_count").fill_null(0))
    own = pl.col("author") == pl.col("receiver")
    pairs = pairs.with_columns(
        pl.min_horizontal("first_held", "due_start").alias("range_start"),
        # A report of missed messages may go beyond the last one that is known.
        pl.max_horizontal(pl.min_horizontal(pl.col("last_held").fill_null(0), "known"), "due_end").alias("range_end"),
    )
    # How many earlier messages may have been due.
    unclear = pl.max_horizontal(pl.col("range_start") - pl.col("maybe_start"), 0).fill_null(0)
    pairs = pairs.with_columns(unclear.alias("unclear"), first_due="range_start")
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
    reached = pl.max_horizontal("range_end", pl.col("range_start") - 1)
    waiting = pl.max_horizontal(pl.col("waiting_end") - reached, 0)
    in_range = pl.max_horizontal(pl.col("range_end") - pl.col("range_start") + 1, 0)
    in_flight = pl.max_horizontal(pl.col("last_sent") - pl.col("first_due") + 1 - in_range - waiting, 0).fill_null(0)
    is_due = pl.col("due_start").is_not_null() & ~own
    return pairs.with_columns(
        pl.when(is_due).then(in_flight).otherwise(0).alias("pending_at_end_count"),
        pl.when(is_due).then(waiting).otherwise(0).alias("unsettled_count"),
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


def _missing(missing: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    sent = messages.select("author", "sequence", pl.col("sent_time").alias("event_time"))
    return missing.join(sent, ["author", "sequence"], "left").select(
        *PAIR,
        pl.lit("missing").alias("finding"),
        "sequence",
        "event_time",
        pl.format("never delivered, though the receiver has {} to {} of this author", "first_held", "last_held")
        .fill_null("never delivered, nor was any other message of this author")
        .alias("detail"),
    )


def _delivery_violations(deliveries: pl.DataFrame, pairs: pl.DataFrame) -> list[pl.DataFrame]:
    delivered = deliveries.filter(pl.col("delivery_count") > 0)
    membership = pairs.select(
        *PAIR, "first_link_ordinal", "left_ordinal", "has_dropped_rows", pl.col("run_id").alias("receiver_run_id")
    )
    placed = delivered.join(membership, PAIR, "inner")
    comparable = (pl.col("run_id") == pl.col("receiver_run_id")) & ~pl.col("has_dropped_rows")
    early = comparable & (pl.col("ordinal") < pl.col("first_link_ordinal"))
    late = comparable & (pl.col("ordinal") > pl.col("left_ordinal"))
    is_missed = (pl.col("delivery_count") == 0) & pl.col("missed_time").is_not_null()
    return [
        _as_findings(
            delivered.filter(pl.col("delivery_count") > 1),
            "duplicate",
            pl.format("delivered {} times", "delivery_count"),
        ),
        _as_findings(misplaced(delivered), "out_of_order", pl.lit("delivered out of the order of its author")),
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
        _as_findings(
            deliveries.filter(is_missed),
            "reported_missed",
            pl.lit("not delivered, and reported as missed to the application"),
            time="missed_time",
        ),
    ]


def _as_findings(rows: pl.DataFrame, finding: str, detail: pl.Expr, time: str = "delivered_time") -> pl.DataFrame:
    return rows.select(
        *PAIR, pl.lit(finding).alias("finding"), "sequence", pl.col(time).alias("event_time"), detail.alias("detail")
    )


TABLE = Table(
    "delivery_balances",
    "For each author and receiver: how many messages were due, and how many arrived?",
    COLUMNS,
    Stage.PAIR,
    depends_on=("quarantine", "messages", "deliveries", "recorded_peers", "membership_intervals", "links"),
    settings=(SETTLE, CLOCK_TOLERANCE, DEGREE),
)
