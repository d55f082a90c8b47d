"""Forged rows: rows of a tape about messages that were never sent. They are found by comparing the tapes of all peers.

An author numbers its messages 1, 2, 3, and so on, and records each sending on its own tape. `docs/pipeline.md` (Forged
rows) has the rules for sendings, messages and deliveries. Those for sendings (`odd_sendings`) and for the vote on
messages without one (`forged_messages`) are here; deliveries are compared in `tables/deliveries.py`.

A forged row changes nothing for other peers: it makes no message due, and its message is not in `messages`.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from broadloom.pipeline.analysis.frames import seconds

JUMP_MAX = 1_000
"""Numbers that may be unknown between two messages of an author without a tape."""

SEQUENCE_MAX = 1 << 53
"""No author sends that many messages."""

JOIN_MARGIN_S = 10.0
"""A peer has every new message this long after it joined."""

CLOCK_MARGIN_S = 1.0
"""An author's tape denies a message only if it continues this long after it."""

_MESSAGE = ["author", "sequence"]
_SENT_COLUMNS = ["author", "sequence", "peer", "run_id", "ordinal", "event_time"]


def out_of_line(numbers: Sequence[int]) -> list[int]:
    """Positions of the numbers that are not in the longest increasing subsequence. If there are several, the later
    numbers are removed: of two that are swapped, the one that comes late."""
    if not numbers:
        return []
    # From the end, the longest increasing subsequence that starts at each position (patience sorting).
    lengths = [0] * len(numbers)
    starts: list[int] = []
    for place in range(len(numbers) - 1, -1, -1):
        length = bisect_left(starts, -numbers[place])
        starts[length : length + 1] = [-numbers[place]]
        lengths[place] = length + 1
    wanted, last, removed = len(starts), None, []
    for place, number in enumerate(numbers):
        if lengths[place] == wanted and (last is None or number > last):
            wanted, last = wanted - 1, number
        else:
            removed.append(place)
    return removed


def odd_sendings(events: pl.DataFrame) -> pl.DataFrame:
    """Sendings that break the numbering of their author: with `is_forged` certainly, else because they skip numbers."""
    sent = events.select("kind", *_SENT_COLUMNS).filter(pl.col("kind") == "sent").drop("kind")
    sent = sent.sort("peer", "run_id", "ordinal")
    is_wrong = (pl.col("author") != pl.col("peer")).fill_null(True) | (pl.col("sequence") > SEQUENCE_MAX)
    own = sent.filter(~is_wrong).with_columns(step=_step())
    forged = [sent.filter(is_wrong)]
    for peer in own.filter(pl.col("step") <= 0)["peer"].unique():
        mine = own.filter(pl.col("peer") == peer)
        forged.append(mine[_wrong_numbers(mine["sequence"].to_list())].select(_SENT_COLUMNS))
    wrong = pl.concat(forged)
    rest = own.join(wrong, ["run_id", "ordinal"], "anti", maintain_order="left").with_columns(step=_step())
    skipping = rest.filter(pl.col("step") > 1).select(_SENT_COLUMNS)
    return pl.concat([wrong.with_columns(is_forged=pl.lit(True)), skipping.with_columns(is_forged=pl.lit(False))])


def _step() -> pl.Expr:
    """From the previous number of the same peer; of the first one, from 0."""
    is_first = (pl.col("peer") != pl.col("peer").shift(1)).fill_null(True)
    return pl.when(is_first).then("sequence").otherwise(pl.col("sequence").diff())


def _wrong_numbers(numbers: list[int]) -> list[int]:
    """Positions of numbers that were overwritten: those around them go on as if they had the right number."""
    offsets = [number - place for place, number in enumerate(numbers)]
    around = [{*offsets[max(0, place - 2) : place], *offsets[place + 1 : place + 3]} for place in range(len(offsets))]
    kept = [place for place, offset in enumerate(offsets) if offset in around[place]]
    if any(numbers[one] >= numbers[other] for one, other in pairwise(kept)):
        return out_of_line(numbers)
    wrong = []
    for place in sorted({*range(len(numbers))} - {*kept}):
        at = bisect_left(kept, place)
        is_above = at == 0 or numbers[kept[at - 1]] < numbers[place]
        is_below = at == len(kept) or numbers[place] < numbers[kept[at]]
        if is_above and is_below:
            kept.insert(at, place)
        else:
            wrong.append(place)
    return wrong


def forged_messages(
    messages: pl.DataFrame,
    odd: pl.DataFrame,
    peers: pl.DataFrame,
    missed: pl.DataFrame,
    settle_s: float,
    receipt_runs: pl.Series,
) -> pl.DataFrame:
    """Author and sequence of the messages that nobody sent.

    `messages` has all messages of a channel with their `witness`, a peer that has it; `odd` are the odd sendings,
    `peers` the recorded peers with the `missing_row_count` of their run, `missed` the reports of missed messages, and
    `receipt_runs` the runs that record what they receive.
    """
    authors = _authors(messages, odd, peers)
    skipping = odd.filter(~pl.col("is_forged")).join(
        messages.select("author", pl.col("sequence") + 1), _MESSAGE, "anti"
    )
    unseen = messages.filter(pl.col("is_recorded") & ~pl.col("is_received") & (pl.col("sequence") > 1))
    unseen = unseen.join(skipping, _MESSAGE, "semi").join(authors.filter("is_whole"), "author", "semi").select(_MESSAGE)
    sent = messages.filter("is_recorded").join(unseen, _MESSAGE, "anti")
    last = sent.group_by("author").agg(last_sent=pl.col("sequence").max())
    doubtful = messages.filter(~pl.col("is_recorded")).join(last, "author", "left")
    doubtful = doubtful.filter(pl.col("sequence") > pl.col("last_sent").fill_null(0)).join(authors, "author", "left")
    if not doubtful.height:
        return unseen
    # Numbers of an author that are far apart from the lower ones.
    known = pl.concat([doubtful.select(_MESSAGE), last.select("author", sequence="last_sent")]).sort(_MESSAGE)
    jump = pl.col("sequence").diff().over("author").fill_null(0) > JUMP_MAX
    islands = known.with_columns(is_far=jump.cum_sum().over("author") > 0)
    votes = _with_votes(doubtful, peers, settle_s).join(islands, _MESSAGE, "left")
    unreceived = _unreceived(votes, peers, receipt_runs)
    votes = votes.filter(_is_outvoted()).join(unreceived, _MESSAGE, "anti")
    reported = votes.select(_MESSAGE).join(missed.rename({"sequence": "first"}), "author")
    reported = reported.filter(pl.col("sequence").is_between("first", pl.coalesce("last_sequence", "first")))
    reported = reported.group_by(_MESSAGE).agg(reported=pl.col("peer").n_unique().cast(pl.Int64))
    count = pl.col("reported").fill_null(0)
    votes = votes.join(reported, _MESSAGE, "left").with_columns(
        pro=pl.col("pro") + count, contra=pl.max_horizontal(pl.col("contra") - count, 0)
    )
    return pl.concat([unseen, unreceived, votes.filter(_is_outvoted()).select(_MESSAGE)])


def _unreceived(messages: pl.DataFrame, peers: pl.DataFrame, receipt_runs: pl.Series) -> pl.DataFrame:
    """Messages that were delivered, but that no peer received, though the tape of the one that has it is complete."""
    is_complete = pl.col("joined_time").is_not_null() & ~pl.col("has_dropped_rows")
    complete = peers.filter(is_complete & pl.col("run_id").is_in(receipt_runs.implode())).select(witness="peer")
    return messages.filter(~pl.col("has_receipt")).join(complete, "witness", "semi").select(_MESSAGE)


def _is_outvoted() -> pl.Expr:
    """Any of these: no author has such a number; only one peer that stayed has the message; its author denies it; its
    number is far beyond the others."""
    pro, contra = pl.col("pro"), pl.col("contra")
    return (
        (pl.col("sequence") > SEQUENCE_MAX)
        | ((pro <= 1) & pl.col("has_stayed") & (contra >= 2))
        | ((pro <= contra) & pl.col("is_denied"))
        | ((pro <= pl.max_horizontal(contra, 1)) & pl.col("is_far"))
    )


def unrecorded_sendings(messages: pl.DataFrame, odd: pl.DataFrame, peers: pl.DataFrame) -> pl.DataFrame:
    """Messages that are missing on the tape of their author, though it is complete and has later ones. A forged sending
    of the author explains one of them: it was that message."""
    absent = _absent(messages).join(_authors(messages, odd, peers), "author").filter("is_complete").sort(_MESSAGE)
    return absent.filter(pl.int_range(pl.len()).over("author") >= pl.col("forged_count"))


def _absent(messages: pl.DataFrame) -> pl.DataFrame:
    """Messages without a recorded sending, though their author recorded a later one."""
    last = messages.filter("is_recorded").group_by("author").agg(last_sent=pl.col("sequence").max())
    return messages.filter(~pl.col("is_recorded")).join(last, "author").filter(pl.col("sequence") < pl.col("last_sent"))


def _authors(messages: pl.DataFrame, odd: pl.DataFrame, peers: pl.DataFrame) -> pl.DataFrame:
    """For each recorded peer: whether its tape is complete, whether it is whole (each of its forged sendings is known
    to be another message), and until when."""
    forged = odd.filter("is_forged").group_by(author="peer").agg(forged_count=pl.len().cast(pl.Int64))
    absent = _absent(messages).group_by("author").agg(absent_count=pl.len().cast(pl.Int64))
    known = peers.rename({"peer": "author"}).join(forged, "author", "left").join(absent, "author", "left")
    known = known.with_columns(pl.col("forged_count", "absent_count").fill_null(0))
    is_complete = pl.col("joined_time").is_not_null() & ~pl.col("has_dropped_rows")
    return known.select(
        *("author", "forged_count"),
        is_complete=is_complete,
        is_whole=is_complete & (pl.col("forged_count") <= pl.col("absent_count")),
        # A tape that ends with the departure is complete; of others, the last minute may be lost.
        complete_until=pl.when(pl.col("end_status") != "left").then("last_event_time"),
    )


def _with_votes(messages: pl.DataFrame, peers: pl.DataFrame, settle_s: float) -> pl.DataFrame:
    """Add how many peers have each message (`pro`), how many do not (`contra`), whether its author is among the latter
    (`is_denied`), and whether the peer that has it stayed (`has_stayed`)."""
    stays = peers.filter(pl.col("end_status") == "present").select(
        *("peer", "joined_time", "run_id", "has_dropped_rows", "missing_row_count"),
        # A message is due no sooner than this.
        stay_start=pl.col("joined_time") + seconds(min(JOIN_MARGIN_S, settle_s)),
        stay_end=pl.col("end_time") - seconds(settle_s),
    )
    stays = stays.filter(pl.col("stay_start") <= pl.col("stay_end"))
    witnesses = stays.select("peer", "stay_end", stay_start="joined_time")
    # Each missing row may be a delivery of the message, so one peer of that run has no vote.
    is_excused = pl.col("has_dropped_rows") & (
        pl.col("missing_row_count").is_null() | (pl.int_range(pl.len()).over("run_id") < pl.col("missing_row_count"))
    )
    stays = stays.filter(~is_excused).select("peer", "stay_start", "stay_end")
    seen = pl.col("first_seen_time")
    times = messages["first_seen_time"].to_physical().to_numpy()
    starts, ends = (np.sort(stays[name].to_physical().to_numpy()) for name in ("stay_start", "stay_end"))
    stayed = np.searchsorted(starts, times, "right") - np.searchsorted(ends, times, "left")
    found = messages.with_columns(stayed=pl.Series(stayed, dtype=pl.Int64))
    for name, role, voters in (("author_stayed", "author", stays), ("has_stayed", "witness", witnesses)):
        there = voters.rename({"peer": role})
        found = found.join(there, role, "left", maintain_order="left")
        within = seen.is_between("stay_start", "stay_end").fill_null(False)
        found = found.with_columns(within.alias(name)).drop("stay_start", "stay_end")
    goes_on = pl.col("complete_until").is_null() | (seen < pl.col("complete_until") - seconds(CLOCK_MARGIN_S))
    is_denied = pl.col("is_whole").fill_null(False) & goes_on
    found = found.with_columns(
        pro=pl.max_horizontal(pl.col("delivery_count"), 1),
        is_denied=is_denied.fill_null(False),
    )
    others = pl.max_horizontal(pl.col("stayed") - pl.col("author_stayed").cast(pl.Int64) - pl.col("pro"), 0)
    return found.with_columns(contra=others + pl.col("is_denied").cast(pl.Int64))
