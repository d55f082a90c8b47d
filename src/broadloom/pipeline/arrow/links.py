"""Links as intervals, put together from what their two ends told.

The rule: a link carries while both its ends have it, so it begins with the later `link_up` and ends with the earlier
`link_down`, or with the death of an end. Where an end records nothing, or its tape ends before, the other's word
counts. Where an end records and knows nothing of it, it is half a link: told, but no part of the fabric.
"""

import polars as pl

from broadloom.pipeline.arrow.clock_correction import ClockCorrection
from broadloom.pipeline.arrow.frames import MICROSECONDS_PER_S, to_arrow, to_polars
from broadloom.pipeline.arrow.membership_intervals import corrected
from broadloom.record.arrow_import import pa

_TIME = pa.timestamp("us", tz="UTC")

LINKS = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("low", pa.string()),
        pa.field("high", pa.string()),
        pa.field("up", _TIME),
        pa.field("down", _TIME),
        pa.field("seconds", pa.float64()),
        pa.field("known_by", pa.string()),
        pa.field("low_up", _TIME),
        pa.field("low_down", _TIME),
        pa.field("low_why", pa.string()),
        pa.field("high_up", _TIME),
        pa.field("high_down", _TIME),
        pa.field("high_why", pa.string()),
        pa.field("died", pa.string()),
    ]
)

_PAIR = ["channel", "low", "high"]


def links(changes: pa.Table, intervals: pa.Table, correction: ClockCorrection) -> pa.Table:
    """All links of some channels: `changes` are the rows of `lives.KINDS`, `lives` the table of that name."""
    members = to_polars(intervals)
    both = _matched(_link_ends(corrected(changes, correction)))
    for end in ("low", "high"):
        about = members.select(
            "channel",
            pl.col("peer").alias(end),
            *(pl.col(name).alias(f"{end}_{name}") for name in ("is_recorded", "since", "last", "gone", "how")),
        )
        both = both.join(about, on=["channel", end], how="left")
    return to_arrow(_merge_ends(both).sort("channel", "up", "low", "high"), LINKS)


def _link_ends(rows: pl.DataFrame) -> pl.DataFrame:
    """What each end told: from its `link_up` to its next `link_down` of the same neighbour; null if it told none."""
    ends = rows.filter(pl.col("kind").is_in(["link_up", "link_down"])).sort("run", "ordinal")
    pair = ["channel", "observer", "neighbour"]
    ends = ends.with_columns(
        next_kind=pl.col("kind").shift(-1).over(pair),
        next_time=pl.col("time").shift(-1).over(pair),
        next_why=pl.col("why").shift(-1).over(pair),
        before=pl.col("kind").shift(1).over(pair),
    )
    closed = pl.col("next_kind") == "link_down"
    began = ends.filter(pl.col("kind") == "link_up").select(
        *pair, up="time", down=pl.when(closed).then("next_time"), why=pl.when(closed).then("next_why")
    )
    # Its beginning is lost (a gap of the tape, or it began before the tape): only the end is known.
    only_end = ends.filter(pl.col("kind") == "link_down", pl.col("before").is_null() | (pl.col("before") != "link_up"))
    ended = only_end.select(*pair, up=pl.lit(None, dtype=pl.Int64), down="time", why="why")
    is_low = pl.col("observer") < pl.col("neighbour")
    return pl.concat([began, ended]).select(
        "channel",
        "up",
        "down",
        "why",
        low=pl.when(is_low).then("observer").otherwise("neighbour"),
        high=pl.when(is_low).then("neighbour").otherwise("observer"),
        end=pl.when(is_low).then(pl.lit("low")).otherwise(pl.lit("high")),
    )


def _matched(halves: pl.DataFrame) -> pl.DataFrame:
    """The two ends of each link in one row.

    The k-th link of one end is the k-th of the other, if both know of equally many. If not, something is lacking, and
    halves belong together if they overlap.
    """
    counted = halves.sort(*_PAIR, pl.coalesce("up", "down")).with_columns(
        place=pl.int_range(pl.len()).over([*_PAIR, "end"]),
        lows=(pl.col("end") == "low").sum().over(_PAIR),
        highs=(pl.col("end") == "high").sum().over(_PAIR),
    )
    even = pl.col("lows") == pl.col("highs")
    by_place = counted.filter(even)
    reach = pl.coalesce("down", pl.lit(2**62)).cum_max().shift(1).over(_PAIR)
    apart = (pl.coalesce("up", "down") > reach) | (pl.col("end") == pl.col("end").shift(1).over(_PAIR))
    by_overlap = counted.filter(~even).with_columns(place=apart.fill_null(False).cast(pl.Int64).cum_sum().over(_PAIR))
    every = pl.concat([by_place, by_overlap.with_columns(pl.col("place").cast(by_place.schema["place"]))])
    values = ["up", "down", "why"]
    low, high = (
        every.filter(pl.col("end") == end).select(
            *_PAIR,
            "place",
            pl.lit(True).alias(f"{end}_told"),
            *(pl.col(value).alias(f"{end}_{value}") for value in values),
        )
        for end in ("low", "high")
    )
    return low.join(high, on=[*_PAIR, "place"], how="full", coalesce=True)


def _merge_ends(both: pl.DataFrame) -> pl.DataFrame:
    both = both.with_columns(
        pl.col("low_told", "high_told").fill_null(False),
        up=pl.coalesce(pl.max_horizontal("low_up", "high_up"), pl.max_horizontal("low_since", "high_since")),
    )

    def silent(end: str) -> pl.Expr:
        """It cannot have told: it records nothing, or its tape ended before."""
        return ~pl.col(f"{end}_is_recorded").fill_null(False) | (pl.col(f"{end}_last") <= pl.col("up"))

    def death(end: str) -> pl.Expr:
        return pl.when(pl.col(f"{end}_how") == "died").then(f"{end}_gone")

    lacking_is_silent = pl.when("low_told").then(silent("high")).otherwise(silent("low"))
    down = pl.min_horizontal("low_down", "high_down", death("low"), death("high"))
    both = both.with_columns(
        # With one end dead before the other had it, or cut before the later one knew, it carried nothing.
        down=pl.when(down.is_not_null()).then(pl.max_horizontal(down, "up")),
        known_by=pl.when(pl.col("low_told") & pl.col("high_told"))
        .then(pl.lit("both"))
        .when(lacking_is_silent)
        .then(pl.lit("one"))
        .otherwise(pl.lit("half")),
        died=pl.when(death("low").is_not_null() & pl.col("low_down").is_null())
        .then("low")
        .when(death("high").is_not_null() & pl.col("high_down").is_null())
        .then("high"),
    )
    return both.with_columns(seconds=(pl.col("down") - pl.col("up")) / MICROSECONDS_PER_S)
