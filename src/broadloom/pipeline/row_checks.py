"""Rows of a tape that cannot be used, and why: one rule for the tables of a build and for live tables."""

from collections.abc import Collection
from datetime import date, datetime

import numpy as np
import polars as pl

from broadloom.record.arrow_import import pa, pc
from broadloom.record.schema import COLUMNS, DAY_US, ID_COLUMNS, ID_PATTERN, EventKind

AMOUNT_MAX = 1 << 48
"""Upper limit of sizes, hops and counts. Larger values are invalid, and their sums would overflow."""

_REQUIRED = [each.name for each in COLUMNS if each.is_required]
_AMOUNTS = ("hops", "event_count", "size_bytes")
_SEQUENCES = ("parent_sequence", "member_sequence", "parent_member_sequence")
_LINK_KINDS = [each.value for each in (EventKind.LINK_UP, EventKind.LINK_DOWN, EventKind.RECEIVED)]
_MESSAGE_KINDS = [
    each.value
    for each in (
        *(EventKind.SENT, EventKind.RECEIVED, EventKind.DELIVERED, EventKind.MISSED),
        *(EventKind.REQUEST_STEP, EventKind.HANDLER_STEP, EventKind.MAILBOX_CHANGE),
    )
]

CHECKED = [
    *_REQUIRED,
    *(*ID_COLUMNS, "sequence", "last_sequence", *_AMOUNTS, *_SEQUENCES),
]
"""The columns that are checked, if they are there."""


def row_problem(columns: Collection[str], latest: datetime | None = None) -> pl.Expr:
    """The reason to exclude a row, as in the table `quarantine`; null for valid rows.

    The frame has `event_date`, the date of the folder. Rows after `latest` are in the future.
    """
    kind, time = pl.col("kind"), pl.col("event_time").to_physical()
    day_us = pl.col("event_date").to_physical().cast(pl.Int64) * DAY_US
    first, last = pl.col("sequence"), pl.col("last_sequence")
    is_incomplete = (
        pl.any_horizontal(pl.col(_REQUIRED).is_null())
        | (pl.col("peer").is_null() & (kind != EventKind.ROWS_DROPPED.value))
        | (pl.col("neighbor").is_null() & kind.is_in(_LINK_KINDS))
        | (pl.any_horizontal(pl.col("author", "sequence").is_null()) & kind.is_in(_MESSAGE_KINDS))
    )
    amounts = [~pl.col(name).is_between(0, AMOUNT_MAX) for name in _AMOUNTS if name in columns]
    sequences = [pl.col(name) < 0 for name in _SEQUENCES if name in columns]
    is_beyond = pl.any_horizontal(
        *(each.fill_null(False) for each in (pl.col("ordinal") < 0, first < 1, last < first, *amounts, *sequences))
    )
    ids = [pl.col(name).cast(pl.String) for name in ID_COLUMNS if name in columns]
    malformed = [~each.str.contains(ID_PATTERN).fill_null(True) for each in ids]
    problem = (
        pl.when(is_incomplete)
        .then(pl.lit("missing_value"))
        .when(~kind.is_in([each.value for each in EventKind]))
        .then(pl.lit("unknown_kind"))
        .when(pl.any_horizontal(*malformed))
        .then(pl.lit("malformed_id"))
        .when(is_beyond)
        .then(pl.lit("out_of_range"))
        .when((time < day_us) | (time >= day_us + DAY_US))
        .then(pl.lit("wrong_date"))
    )
    if latest is not None:
        problem = problem.when(time > int(latest.timestamp() * 1_000_000)).then(pl.lit("future_time"))
    return problem.otherwise(None)


def has_flaws(batch: pa.RecordBatch, day: date, latest: datetime) -> bool:
    """Whether some row has a problem; much faster than looking at each one. Texts are dictionaries."""
    if any(batch[name].null_count for name in _REQUIRED):
        return True
    begin_us = (day - date(1970, 1, 1)).days * DAY_US
    # As numbers: pyarrow imports pandas for times.
    times, ordinals = (pc.min_max(batch[name].cast(pa.int64())).as_py() for name in ("event_time", "ordinal"))
    latest_us = int(latest.timestamp() * 1_000_000)
    if times["min"] < begin_us or times["max"] >= min(begin_us + DAY_US, latest_us) or ordinals["min"] < 0:
        return True
    for name in (*_AMOUNTS, *_SEQUENCES, "sequence"):
        ends = pc.min_max(batch[name]).as_py()
        if ends["min"] is not None and (
            ends["min"] < (name == "sequence") or (name in _AMOUNTS and ends["max"] > AMOUNT_MAX)
        ):
            return True
    if pc.any(pc.less(batch["last_sequence"], batch["sequence"])).as_py():
        return True
    for name in (each for each in ID_COLUMNS if each in batch.schema.names):
        words = batch[name].dictionary if pa.types.is_dictionary(batch[name].type) else pc.unique(batch[name])
        if not pc.all(pc.match_substring_regex(words, ID_PATTERN), min_count=0).as_py():
            return True
    kinds = batch["kind"] if pa.types.is_dictionary(batch["kind"].type) else batch["kind"].dictionary_encode()
    words, codes = kinds.dictionary.to_pylist(), kinds.indices.to_numpy(zero_copy_only=False)
    if not {words[code] for code in np.unique(codes)} <= {each.value for each in EventKind}:
        return True
    needs = {
        "peer": [word != EventKind.ROWS_DROPPED.value for word in words],
        "neighbor": [word in _LINK_KINDS for word in words],
        **{name: [word in _MESSAGE_KINDS for word in words] for name in ("author", "sequence")},
    }
    return any(
        bool((np.array(needed)[codes] & batch[name].is_null().to_numpy(zero_copy_only=False)).any())
        for name, needed in needs.items()
        if batch[name].null_count
    )
