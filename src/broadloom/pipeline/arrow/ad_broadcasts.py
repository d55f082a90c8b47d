"""Adverts: which showings are one broadcast, who was connected then, and what that costs.

The rule: what observers show of an advert within `spread_us` of the first is one broadcast, at the moment of that
first. Its audience are the subscribers with a session at that moment, both ends included. Its fee is exact, to the
ten-thousandth; only the sum on a bill is rounded.
"""

from itertools import pairwise

import numpy as np
import polars as pl

from broadloom.pipeline.arrow.frames import to_arrow, to_polars
from broadloom.pipeline.billing.config import BillingConfig
from broadloom.pipeline.billing.money import MONEY, Ints, round_amounts, to_decimal, to_ten_thousandths
from broadloom.record.arrow_import import pa

_TIME = pa.timestamp("us", tz="UTC")
_KEYS = ["channel", "advert", "group", "topic"]

BROADCASTS: pa.Schema = pa.schema(
    [
        ("channel", pa.string()),
        ("advert", pa.string()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("time", _TIME),
        ("shown", pa.int64()),
    ]
)
WITH_AUDIENCE: pa.Schema = BROADCASTS.append(pa.field("audience", pa.int64()))
WITH_FEES: pa.Schema = pa.schema(
    [*WITH_AUDIENCE, ("advertiser", pa.string()), ("fee", MONEY), ("currency", pa.string()), ("reason", pa.string())]
)


def broadcasts(impressions: pa.Table, window_us: int) -> pa.Table:
    """One row a broadcast, from `time` and `observer` of showings. All showings of an advert are in the table."""
    frame = to_polars(impressions).sort([*_KEYS, "time"])
    keys = frame.select(_KEYS)
    begins_keys = keys.select(pl.any_horizontal(pl.all().ne_missing(pl.all().shift(1)))).to_series().fill_null(True)
    edges = [*np.flatnonzero(begins_keys.to_numpy() | (np.arange(len(frame)) == 0)).tolist(), len(frame)]
    times: Ints = frame["time"].to_numpy()
    first = np.zeros(len(frame), dtype=bool)
    for begin, end in pairwise(edges):
        at = begin
        while at < end:  # once for each broadcast: from the first showing to the first one too late for it
            first[at] = True
            at = begin + int(np.searchsorted(times[begin:end], times[at] + window_us, side="right"))
    found = (
        frame.with_columns(broadcast=pl.Series(np.cumsum(first)))
        .group_by("broadcast", maintain_order=True)
        .agg(*(pl.col(each).first() for each in [*_KEYS, "time"]), shown=pl.col("observer").n_unique().cast(pl.Int64))
    )
    return to_arrow(found, BROADCASTS)


def add_audience(broadcasts: pa.Table, sessions: pa.Table) -> pa.Table:
    """Broadcasts of one channel with their audience, from the channel's sessions.

    Sessions of a subscriber do not overlap, so those that have begun less those that have ended are subscribers.
    """
    frame = to_polars(broadcasts)
    spans = to_polars(sessions.select(["start", "end"]))
    at: Ints = frame["time"].to_numpy()
    begun = np.searchsorted(np.sort(spans["start"].to_numpy()), at, side="right")
    ended = np.searchsorted(np.sort(spans["end"].to_numpy()), at, side="left")
    return broadcasts.append_column("audience", pa.array(begun - ended, pa.int64())).cast(WITH_AUDIENCE)


def add_fees(broadcasts: pa.Table, billing: BillingConfig) -> pa.Table:
    """With the advertiser and the fee; an advert that is nobody's costs nothing and says why."""
    names = broadcasts["advert"].to_pylist()
    owners = {name: billing.advertiser(name or "") for name in dict.fromkeys(names)}
    known = pl.DataFrame(
        [
            (
                name,
                each and each.name,
                to_ten_thousandths(each.broadcast_fee) if each else 0,
                to_ten_thousandths(each.subscriber_fee) if each else 0,
            )
            for name, each in owners.items()
        ],
        schema={"advert": pl.String, "advertiser": pl.String, "broadcast": pl.Int64, "subscriber": pl.Int64},
        orient="row",
    )
    frame = to_polars(broadcasts.select(["advert", "audience"]))
    found = frame.join(known, on="advert", how="left", nulls_equal=True, maintain_order="left").with_columns(
        fee=pl.col("broadcast") + pl.col("subscriber") * pl.col("audience"),
        currency=pl.lit(billing.currency),
        reason=pl.when(pl.col("advertiser").is_null()).then(
            pl.lit("no advertiser of the billing file names this advert")
        ),
    )
    columns = found.select("advertiser", "currency", "reason").to_arrow()
    table = broadcasts.append_column("advertiser", columns["advertiser"])
    table = table.append_column("fee", to_decimal(found["fee"].to_numpy()))
    for name in ("currency", "reason"):
        table = table.append_column(name, columns[name])
    return table.cast(WITH_FEES)


def round_fees(fees: Ints, billing: BillingConfig) -> pa.Array:
    """Sums of exact fees as they stand on a bill."""
    return to_decimal(round_amounts(fees, billing.digits, billing.rounding))
