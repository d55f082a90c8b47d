"""Messages that a receiver should have and does not, and which of them may be in missing rows."""

import polars as pl

MISSING_MAX = 1_000_000
"""Missing messages listed per author and receiver. Only a nonsensical sequence number leads to more."""

PAIR = ["author", "receiver"]


def find_missing(pairs: pl.DataFrame, deliveries: pl.DataFrame) -> pl.DataFrame:
    """One row per message from `range_start` to `range_end` that was neither delivered nor reported as missed."""
    start, end = pl.col("range_start"), pl.col("range_end")
    known = deliveries.filter((pl.col("delivery_count") > 0) | pl.col("missed_time").is_not_null())
    wanted = pairs.filter(end >= start)
    counts = (
        known.join(wanted.select(*PAIR, "range_start", "range_end"), PAIR, "inner")
        .filter(pl.col("sequence").is_between(start, end))
        .group_by(PAIR)
        .agg(pl.len().cast(pl.Int64).alias("found"))
    )
    incomplete = (
        wanted.join(counts, PAIR, "left")
        .filter(pl.col("found").fill_null(0) < end - start + 1)
        .select(*PAIR, "run_id", "own_joined_time", "first_held", "last_held", "range_start", "range_end")
    )
    ends = pl.min_horizontal(end + 1, start + MISSING_MAX)
    listed = incomplete.with_columns(pl.int_ranges("range_start", ends).alias("sequence")).explode("sequence")
    return listed.join(known.select(*PAIR, "sequence"), [*PAIR, "sequence"], "anti")


def excused_by_dropped_rows(
    missing: pl.DataFrame, pairs: pl.DataFrame, deliveries: pl.DataFrame, dropped_rows: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The missing messages whose delivery cannot be among dropped rows, and the number of the others per pair.

    A delivery would have been recorded between the deliveries of the messages before and after it.
    """
    none_excused = pairs.select(*PAIR).clear().with_columns(pl.lit(0, pl.Int64).alias("unknown_dropped_rows_count"))
    if not dropped_rows.height or not missing.height:
        return missing, none_excused
    seen = deliveries.with_columns(pl.coalesce("delivered_time", "missed_time").alias("seen_time"))
    seen = seen.drop_nulls("seen_time").sort("sequence").select(*PAIR, "sequence", "seen_time")
    missing = missing.sort("sequence")
    between = missing.join_asof(
        seen.rename({"seen_time": "after_time"}), on="sequence", by=PAIR, strategy="backward", check_sortedness=False
    ).join_asof(
        seen.rename({"seen_time": "before_time"}), on="sequence", by=PAIR, strategy="forward", check_sortedness=False
    )
    # `before_time` may be null: the last message may have been delivered at any later time.
    between = between.with_columns(pl.coalesce("after_time", "own_joined_time").alias("after_time"))
    hidden = (
        between.join(dropped_rows, "run_id", "inner")
        .filter(
            (pl.col("gap_end").is_null() | (pl.col("gap_end") >= pl.col("after_time")).fill_null(True))
            & (pl.col("gap_start").is_null() | (pl.col("gap_start") <= pl.col("before_time")).fill_null(True))
        )
        .select(*PAIR, "sequence")
        .unique()
    )
    counts = hidden.group_by(PAIR).agg(pl.len().cast(pl.Int64).alias("unknown_dropped_rows_count"))
    return missing.join(hidden, [*PAIR, "sequence"], "anti"), counts
