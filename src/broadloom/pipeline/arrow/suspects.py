"""Messages that a member should have had and has not, and which of these may be in rows that are lacking."""

import polars as pl

MISSING_MAX = 1_000_000
"""Missing messages of one author and member that are named one by one; a number beyond all sense makes no more."""

PAIR = ["channel", "author", "member"]


def find_missing(pairs: pl.DataFrame, deliveries: pl.DataFrame) -> pl.DataFrame:
    """One row for each message from `from` to `to` that was neither delivered nor told as missed."""
    known = deliveries.filter((pl.col("copies") > 0) | pl.col("missed").is_not_null())
    wanted = pairs.filter(pl.col("to") >= pl.col("from"))
    counts = (
        known.join(wanted.select(*PAIR, "from", "to"), PAIR, "inner")
        .filter(pl.col("sequence").is_between(pl.col("from"), pl.col("to")))
        .group_by(PAIR)
        .agg(pl.len().cast(pl.Int64).alias("found"))
    )
    deficient = (
        wanted.join(counts, PAIR, "left")
        .filter(pl.col("found").fill_null(0) < pl.col("to") - pl.col("from") + 1)
        .select(*PAIR, "run", "joined", "until", "last", "first", "final", "from", "to")
    )
    ends = pl.min_horizontal(pl.col("to") + 1, pl.col("from") + MISSING_MAX)
    listed = deficient.with_columns(pl.int_ranges("from", ends).alias("sequence")).explode("sequence")
    return listed.join(known.select(*PAIR, "sequence"), [*PAIR, "sequence"], "anti")


def excused_by_dropped_rows(
    missing: pl.DataFrame, pairs: pl.DataFrame, deliveries: pl.DataFrame, dropped_rows: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Those whose delivery cannot have been among lost rows; and how many of the others each pair has.

    A delivery would have stood between those of the messages before and after it.
    """
    nothing = pairs.select(*PAIR).clear().with_columns(pl.lit(0, pl.Int64).alias("unjudged_gap"))
    if not dropped_rows.height or not missing.height:
        return missing, nothing
    told = deliveries.with_columns(pl.coalesce("delivered", "missed").alias("at")).drop_nulls("at").sort("sequence")
    told = told.select(*PAIR, "sequence", "at")
    missing = missing.sort("sequence")
    before = missing.join_asof(
        told.rename({"at": "after_time"}), on="sequence", by=PAIR, strategy="backward", check_sortedness=False
    )
    both = before.join_asof(
        told.rename({"at": "before_time"}), on="sequence", by=PAIR, strategy="forward", check_sortedness=False
    )
    both = both.with_columns(
        pl.coalesce("after_time", "joined").alias("after_time"),
        # Open to the end: what was lost last may be of any later time.
        pl.col("before_time"),
    )
    hidden = (
        both.join(dropped_rows, ["channel", "run"], "inner")
        .filter(
            (pl.col("end").is_null() | (pl.col("end") >= pl.col("after_time")).fill_null(True))
            & (pl.col("begin").is_null() | (pl.col("begin") <= pl.col("before_time")).fill_null(True))
        )
        .select(*PAIR, "sequence")
        .unique()
    )
    counts = hidden.group_by(PAIR).agg(pl.len().cast(pl.Int64).alias("unjudged_gap"))
    return missing.join(hidden, [*PAIR, "sequence"], "anti"), counts
