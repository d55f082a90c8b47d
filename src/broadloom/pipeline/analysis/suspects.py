"""Messages that a receiver should have and does not, and which of them may be in missing or forged rows."""

import polars as pl

from broadloom.pipeline.analysis.forged_rows import out_of_line
from broadloom.pipeline.analysis.frames import seconds

MISSING_MAX = 1_000_000
"""Missing messages listed per author and receiver. Only a nonsensical sequence number leads to more."""

PAIR = ["author", "receiver"]

ODD_COLUMNS = ["author", "sequence", "receiver", "ordinal", "size_bytes", "hops"]
"""The columns of deliveries that may be forged."""


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
        .select(
            *PAIR, "run_id", "own_joined_time", "clock_error", "first_held", "last_held", "range_start", "range_end"
        )
    )
    ends = pl.min_horizontal(end + 1, start + MISSING_MAX)
    listed = incomplete.with_columns(pl.int_ranges("range_start", ends).alias("sequence")).explode("sequence")
    return listed.join(known.select(*PAIR, "sequence"), [*PAIR, "sequence"], "anti")


def excused_by_dropped_rows(
    missing: pl.DataFrame,
    deliveries: pl.DataFrame,
    messages: pl.DataFrame,
    dropped_rows: pl.DataFrame,
    clock_tolerance_s: float,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The missing messages whose delivery cannot be among dropped rows, and the number of the others per pair.

    A delivery would have been recorded between the deliveries of the messages before and after it, and after it was
    sent. A gap excuses no more deliveries than it has rows; of too many, those that must have come first.
    """
    none_excused = missing.select(*PAIR).clear().with_columns(pl.lit(0, pl.Int64).alias("unknown_dropped_rows_count"))
    if not dropped_rows.height or not missing.height:
        return missing, none_excused
    key = [*PAIR, "sequence"]
    seen = deliveries.with_columns(pl.coalesce("delivered_time", "missed_time").alias("seen_time"))
    seen = seen.drop_nulls("seen_time").sort("sequence").select(*key, "seen_time")
    missing = missing.sort("sequence")
    between = missing.join_asof(
        seen.rename({"seen_time": "after_time"}), on="sequence", by=PAIR, strategy="backward", check_sortedness=False
    ).join_asof(
        seen.rename({"seen_time": "before_time"}), on="sequence", by=PAIR, strategy="forward", check_sortedness=False
    )
    between = between.join(messages.select("author", "sequence", "sent_time"), ["author", "sequence"], "left")
    # `before_time` may be null: the last message may have been delivered at any later time.
    between = between.select(
        *(*key, "run_id", "before_time"),
        after_time=pl.coalesce("after_time", "own_joined_time"),
        sent_time=pl.col("sent_time") - pl.col("clock_error") - seconds(clock_tolerance_s),
    ).sort("before_time", "sent_time", nulls_last=True)
    hidden = [between.clear()]
    for gap in dropped_rows.sort("gap_end", nulls_last=True).iter_rows(named=True):
        fits = [
            limit(gap[end]) if gap[end] is not None else pl.lit(True)
            for end, limit in (
                ("gap_end", pl.col("after_time").le),
                ("common_end", pl.col("sent_time").le),
                ("gap_start", pl.col("before_time").ge),
            )
        ]
        found = between.filter(pl.col("run_id") == gap["run_id"], *(each.fill_null(True) for each in fits))
        hidden.append(found if gap["row_count"] is None else found.head(gap["row_count"]))
        between = between.join(hidden[-1], key, "anti", maintain_order="left")
    excused = pl.concat(hidden)
    counts = excused.group_by(PAIR).agg(pl.len().cast(pl.Int64).alias("unknown_dropped_rows_count"))
    return missing.join(excused, key, "anti"), counts


def misplaced(delivered: pl.DataFrame) -> pl.DataFrame:
    """Deliveries out of the order of their author: as few as possible, so that the others are in order. A message that
    was delivered twice is a finding of its own; one of its deliveries may be in order."""
    found = [delivered.clear()]
    again = delivered.filter(pl.col("delivery_count") > 1).with_columns(ordinal="again_ordinal")
    ordered = pl.concat([delivered, again]).sort("ordinal")
    is_back = (pl.col("sequence") < pl.col("sequence").shift(1).over(PAIR)).fill_null(False)
    back = ordered.filter(is_back).select(PAIR).unique()
    for _, rows in ordered.join(back, PAIR, "semi", maintain_order="left").group_by(PAIR, maintain_order=True):
        found.append(rows[out_of_line(rows["sequence"].to_list())])
    return pl.concat(found).filter(pl.col("delivery_count") == 1)


def overwritten(deliveries: pl.DataFrame, known_forged: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Forged deliveries and forged receipts, found by comparing the two. `known_forged` are rows found before.

    In a complete tape every message is received before it is delivered. A message that was only delivered, at the place
    of one that was only received, with its size and hops, is that one. But if a later message of its author was
    delivered too, the receiver has it, and the receipt is forged.
    """
    is_delivered, is_received = pl.col("delivery_count") > 0, pl.col("received_time").is_not_null()
    undelivered = deliveries.filter(is_received & ~is_delivered & pl.col("missed_time").is_null())
    # A delivery to its own author is a finding of its own, and has no receipt anyway.
    is_other = pl.col("author") != pl.col("receiver")
    unreceived = deliveries.filter(is_delivered & ~is_received & is_other).join(undelivered, "receiver", "semi")
    # A tape that has no receipts, or lost many, proves nothing. A forged receipt is that of a delivery without one.
    receipts = undelivered.select("receiver").cast(pl.String)
    receipts = pl.concat([receipts, _forged_receipts(known_forged)]).cast(undelivered.select("receiver").schema)
    counts = receipts.group_by("receiver").agg(receipt_count=pl.len())
    is_rare = pl.len().over("receiver") <= pl.col("receipt_count")
    unreceived = unreceived.join(counts, "receiver").filter(is_rare).drop("receipt_count")
    if not unreceived.height:
        return unreceived, unreceived
    key = [*PAIR, "sequence"]
    held = deliveries.filter(is_delivered).group_by(PAIR).agg(held=pl.col("sequence").max())
    is_inner = (pl.col("sequence") < pl.col("held")).fill_null(False)
    last = unreceived.join(held, PAIR, "left").filter(~is_inner)
    around, sizes = deliveries.join(undelivered, PAIR, "semi"), undelivered.unique(["author", "sequence"])
    found = mislabeled(undelivered, around, last.select(ODD_COLUMNS), sizes)
    forged = unreceived.join(
        found.select("receiver", author="odd_author", sequence="odd_sequence"), key, "semi", maintain_order="left"
    )
    inner = (
        unreceived.join(held, PAIR, "left").filter(is_inner).select("receiver", "hops", "size_bytes", "delivered_time")
    )
    receipts = undelivered.join(held, PAIR, "left").filter(~is_inner).join(inner, ["receiver", "hops", "size_bytes"])
    receipts = receipts.filter(pl.col("received_time") <= pl.col("delivered_time_right"))
    return forged, undelivered.join(receipts, key, "semi")


def _forged_receipts(forged: pl.DataFrame) -> pl.DataFrame:
    """The receiver of each forged receipt whose message was not delivered in a forged row too."""
    key = [*PAIR, "sequence"]
    delivered = forged.filter(pl.col("kind") == "delivered")
    return forged.filter(pl.col("kind") == "received").join(delivered, key, "anti").select("receiver")


def mislabeled(
    missing: pl.DataFrame, deliveries: pl.DataFrame, odd: pl.DataFrame, messages: pl.DataFrame
) -> pl.DataFrame:
    """Pairs of a missing message and an odd delivery, with which it is at the right place: its author or number was
    overwritten. The columns of the delivery are named `odd_...`.

    `odd` has deliveries that are forged, misplaced or repeated. The two must have the same size and hops.
    """
    delivered = deliveries.filter(pl.col("delivery_count") > 0).sort("sequence").select(*PAIR, "sequence", "ordinal")
    places = missing.select(*PAIR, "sequence").sort("sequence")
    places = places.join_asof(
        delivered.rename({"ordinal": "after"}), on="sequence", by=PAIR, strategy="backward", check_sortedness=False
    ).join_asof(
        delivered.rename({"ordinal": "before"}), on="sequence", by=PAIR, strategy="forward", check_sortedness=False
    )
    received = deliveries.filter(pl.col("delivery_count") == 0).select(*PAIR, "sequence", "hops")
    places = places.join(received, [*PAIR, "sequence"], "left")
    places = places.join(messages.select("author", "sequence", "size_bytes"), ["author", "sequence"], "left")
    named = {name: f"odd_{name}" for name in odd.columns if name != "receiver"}
    found = places.join(odd.rename(named), "receiver").filter(
        (pl.col("odd_ordinal") >= pl.col("after")).fill_null(True),
        (pl.col("odd_ordinal") <= pl.col("before")).fill_null(True),
        (pl.col("odd_size_bytes") == pl.col("size_bytes")).fill_null(True),
        (pl.col("odd_hops") == pl.col("hops")).fill_null(True),
    )
    # Each delivery is one message, the one with the closest neighbors.
    found = found.sort(pl.col("before") - pl.col("after"), nulls_last=True)
    found = found.unique(["receiver", "odd_ordinal"], keep="first", maintain_order=True)
    return found.unique([*PAIR, "sequence"], keep="first", maintain_order=True)


def explained_by_forged(
    missing: pl.DataFrame, violations: pl.DataFrame, rows: pl.DataFrame, forged: pl.DataFrame, messages: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The missing messages and violations that remain if some deliveries are forged rows, and the number of missing
    messages per pair that were these deliveries."""
    delivered = rows.filter(pl.col("delivery_count") > 0)
    first = pl.concat([misplaced(delivered), delivered.filter(pl.col("delivery_count") > 1)])
    again = first.filter(pl.col("delivery_count") > 1).with_columns(ordinal="again_ordinal", hops="again_hops")
    forged = forged.filter(pl.col("kind") == "delivered")
    odd = pl.concat([each.select(ODD_COLUMNS) for each in (forged, first, again)])
    found = mislabeled(missing, rows, odd, messages)
    explained = found.group_by(PAIR).agg(unknown_dropped_rows_count=pl.len().cast(pl.Int64))
    key = [*PAIR, "sequence"]
    named = found.select("receiver", author="odd_author", sequence="odd_sequence", place=pl.format("{}#{}", *key[::2]))
    is_order = pl.col("finding").is_in(["out_of_order", "duplicate"])
    replaced = violations.filter(is_order).join(named, key, "inner")
    kept = pl.concat([violations.filter(~is_order), violations.filter(is_order).join(named, key, "anti")])
    as_forged = replaced.with_columns(
        finding=pl.lit("forged"), detail=pl.format("delivered at the place of {}", "place")
    ).select(violations.columns)
    return missing.join(found, key, "anti"), pl.concat([kept, as_forged]), explained
