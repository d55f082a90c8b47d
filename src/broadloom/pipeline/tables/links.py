"""Links as intervals, merged from what their two ends recorded.

A link carries messages while both ends have it, so it starts with the later `link_up` and ends with the earlier
`link_down`, or with the crash of an end. Where an end does not record, or its tape ends before, the other end's record
counts. Where an end records and does not know the link, the link is `disputed`: listed, but no part of the fabric.
"""

import polars as pl

from broadloom.pipeline.analysis.channel_clock import ChannelClock
from broadloom.pipeline.analysis.clock_correction import ClockCorrection
from broadloom.pipeline.analysis.frames import conform, in_us, to_ms
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column
from broadloom.pipeline.tables.membership_intervals import corrected, membership_events

COLUMNS = (
    CHANNEL,
    column("peer_a", "The end with the lower peer ID."),
    column("peer_b", "The other end."),
    column("start_time", "When both ends had the link, by the reference clock."),
    column("end_time", "When the first end dropped it or crashed; null if still up at the end."),
    column("duration_ms", "Duration; null if still up at the end."),
    column("evidence", "`both` ends; `one` (the other has no tape then); `disputed` (the other denies it)."),
    column("a_start_time", "Link up as recorded by peer a."),
    column("a_end_time", "Link down as recorded by peer a; null if not recorded."),
    column("a_reason", "Reason recorded by peer a."),
    column("b_start_time", "Link up as recorded by peer b."),
    column("b_end_time", "Link down as recorded by peer b; null if not recorded."),
    column("b_reason", "Reason recorded by peer b."),
    column("crashed_peer", "The end that crashed while the link was up, if one did."),
)

_PAIR = ["channel", "peer_a", "peer_b"]


def links(changes: pl.DataFrame, intervals: pl.DataFrame, correction: ClockCorrection | ChannelClock) -> pl.DataFrame:
    """All links of some channels, from their membership events and the table `membership_intervals`."""
    members = in_us(intervals)
    both = _matched(_link_ends(corrected(changes, correction)))
    for end in ("a", "b"):
        member = members.select(
            "channel",
            pl.col("peer").alias(f"peer_{end}"),
            pl.col("is_recorded").alias(f"{end}_is_recorded"),
            pl.col("start_time").alias(f"{end}_member_start"),
            pl.col("last_seen_time").alias(f"{end}_last_seen"),
            pl.when(pl.col("end_status") == "crashed").then("end_time").alias(f"{end}_crash_time"),
        )
        both = both.join(member, on=["channel", f"peer_{end}"], how="left")
    return conform(_merge_ends(both).sort("channel", "start_time", "peer_a", "peer_b"), COLUMNS)


def _link_ends(rows: pl.DataFrame) -> pl.DataFrame:
    """What each end recorded: from `link_up` to the next `link_down` with the same neighbor; null if not recorded."""
    ends = rows.filter(pl.col("kind").is_in(["link_up", "link_down"])).sort("run_id", "ordinal")
    pair = ["channel", "peer", "neighbor"]
    ends = ends.with_columns(
        next_kind=pl.col("kind").shift(-1).over(pair),
        next_time=pl.col("event_time").shift(-1).over(pair),
        next_reason=pl.col("reason").shift(-1).over(pair),
        previous_kind=pl.col("kind").shift(1).over(pair),
    )
    is_closed = pl.col("next_kind") == "link_down"
    opened = ends.filter(pl.col("kind") == "link_up").select(
        *pair,
        start_time="event_time",
        end_time=pl.when(is_closed).then("next_time"),
        reason=pl.when(is_closed).then("next_reason"),
    )
    # The start was not recorded (dropped rows, or before the tape): only the end is known.
    is_unopened = pl.col("previous_kind").is_null() | (pl.col("previous_kind") != "link_up")
    closed = ends.filter(pl.col("kind") == "link_down", is_unopened).select(
        *pair, start_time=pl.lit(None, dtype=pl.Int64), end_time="event_time", reason="reason"
    )
    is_a = pl.col("peer") < pl.col("neighbor")
    return pl.concat([opened, closed]).select(
        "channel",
        "start_time",
        "end_time",
        "reason",
        peer_a=pl.when(is_a).then("peer").otherwise("neighbor"),
        peer_b=pl.when(is_a).then("neighbor").otherwise("peer"),
        end=pl.when(is_a).then(pl.lit("a")).otherwise(pl.lit("b")),
    )


def _matched(halves: pl.DataFrame) -> pl.DataFrame:
    """The two ends of each link in one row.

    If both ends recorded equally many links, the k-th of one is the k-th of the other. If not, rows are missing, and
    halves match if they overlap in time.
    """
    start = pl.coalesce("start_time", "end_time")
    counted = halves.sort(*_PAIR, start).with_columns(
        position=pl.int_range(pl.len()).over([*_PAIR, "end"]),
        a_count=(pl.col("end") == "a").sum().over(_PAIR),
        b_count=(pl.col("end") == "b").sum().over(_PAIR),
    )
    is_even = pl.col("a_count") == pl.col("b_count")
    by_position = counted.filter(is_even)
    reach = pl.coalesce("end_time", pl.lit(2**62)).cum_max().shift(1).over(_PAIR)
    starts_new = (start > reach) | (pl.col("end") == pl.col("end").shift(1).over(_PAIR))
    by_overlap = counted.filter(~is_even).with_columns(
        position=starts_new.fill_null(False).cast(pl.Int64).cum_sum().over(_PAIR)
    )
    positions = pl.col("position").cast(by_position.schema["position"])
    every = pl.concat([by_position, by_overlap.with_columns(positions)])
    side_a, side_b = (
        every.filter(pl.col("end") == end).select(
            *_PAIR,
            "position",
            pl.lit(True).alias(f"has_{end}"),
            *(pl.col(value).alias(f"{end}_{value}") for value in ("start_time", "end_time", "reason")),
        )
        for end in ("a", "b")
    )
    return side_a.join(side_b, on=[*_PAIR, "position"], how="full", coalesce=True)


def _merge_ends(both: pl.DataFrame) -> pl.DataFrame:
    both = both.with_columns(
        pl.col("has_a", "has_b").fill_null(False),
        start_time=pl.coalesce(
            pl.max_horizontal("a_start_time", "b_start_time"), pl.max_horizontal("a_member_start", "b_member_start")
        ),
    )

    def is_silent(end: str) -> pl.Expr:
        """It cannot have recorded the link: it does not record, or its tape ended before."""
        return ~pl.col(f"{end}_is_recorded").fill_null(False) | (pl.col(f"{end}_last_seen") <= pl.col("start_time"))

    absent_is_silent = pl.when("has_a").then(is_silent("b")).otherwise(is_silent("a"))
    end_time = pl.min_horizontal("a_end_time", "b_end_time", "a_crash_time", "b_crash_time")
    both = both.with_columns(
        # If one end ended before the other had the link, it never carried anything.
        end_time=pl.when(end_time.is_not_null()).then(pl.max_horizontal(end_time, "start_time")),
        evidence=pl.when(pl.col("has_a") & pl.col("has_b"))
        .then(pl.lit("both"))
        .when(absent_is_silent)
        .then(pl.lit("one"))
        .otherwise(pl.lit("disputed")),
        crashed_peer=pl.when(pl.col("a_crash_time").is_not_null() & pl.col("a_end_time").is_null())
        .then("peer_a")
        .when(pl.col("b_crash_time").is_not_null() & pl.col("b_end_time").is_null())
        .then("peer_b"),
    )
    return both.with_columns(duration_ms=to_ms(pl.col("end_time") - pl.col("start_time")))


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return links(membership_events(inputs), inputs["membership_intervals"], ChannelClock.of(inputs))


TABLE = Table(
    "links",
    "Which peers were linked from when to when, and how did the link end?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("clock_offsets", "membership_intervals"),
)
