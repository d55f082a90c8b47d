"""Adverts: which showings are one broadcast, who was connected then, and what that costs.

The rule: what observers show of an advert within `spread_us` of the first is one broadcast, at the moment of that
first. Its audience are the subscribers with a session at that moment, both ends included. Its fee is exact, to the
ten-thousandth; only the sum on a bill is rounded.
"""

from itertools import pairwise

import numpy as np
import polars as pl

from weft.pipeline.arrow.frames import to_arrow, to_polars
from weft.pipeline.arrow.money import MONEY, Whole, parts, rounded, to_decimal
from weft.pipeline.plans import Billing
from weft.record.arrow import pa

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
HEARD: pa.Schema = BROADCASTS.append(pa.field("audience", pa.int64()))
PRICED: pa.Schema = pa.schema(
    [*HEARD, ("advertiser", pa.string()), ("fee", MONEY), ("currency", pa.string()), ("reason", pa.string())]
)


def broadcasts(showings: pa.Table, spread_us: int) -> pa.Table:
    """One row a broadcast, from `time` and `observer` of showings. All showings of an advert are in the table."""
    frame = to_polars(showings).sort([*_KEYS, "time"])
    keys = frame.select(_KEYS)
    begins_keys = keys.select(pl.any_horizontal(pl.all().ne_missing(pl.all().shift(1)))).to_series().fill_null(True)
    edges = [*np.flatnonzero(begins_keys.to_numpy() | (np.arange(len(frame)) == 0)).tolist(), len(frame)]
    times: Whole = frame["time"].to_numpy()
    first = np.zeros(len(frame), dtype=bool)
    for begin, end in pairwise(edges):
        at = begin
        while at < end:  # once for each broadcast: from the first showing to the first one too late for it
            first[at] = True
            at = begin + int(np.searchsorted(times[begin:end], times[at] + spread_us, side="right"))
    found = (
        frame.with_columns(broadcast=pl.Series(np.cumsum(first)))
        .group_by("broadcast", maintain_order=True)
        .agg(*(pl.col(each).first() for each in [*_KEYS, "time"]), shown=pl.col("observer").n_unique().cast(pl.Int64))
    )
    return to_arrow(found, BROADCASTS)


def heard(broadcasts: pa.Table, sessions: pa.Table) -> pa.Table:
    """Broadcasts of one channel with their audience, from the channel's sessions.

    Sessions of a subscriber do not overlap, so those that have begun less those that have ended are subscribers.
    """
    frame = to_polars(broadcasts)
    spans = to_polars(sessions.select(["start", "end"]))
    at: Whole = frame["time"].to_numpy()
    begun = np.searchsorted(np.sort(spans["start"].to_numpy()), at, side="right")
    ended = np.searchsorted(np.sort(spans["end"].to_numpy()), at, side="left")
    return broadcasts.append_column("audience", pa.array(begun - ended, pa.int64())).cast(HEARD)


def priced(heard: pa.Table, billing: Billing) -> pa.Table:
    """With the advertiser and the fee; an advert that is nobody's costs nothing and says why."""
    names = heard["advert"].to_pylist()
    owners = {name: billing.advertiser(name or "") for name in dict.fromkeys(names)}
    known = pl.DataFrame(
        [
            (name, each and each.name, parts(each.broadcast) if each else 0, parts(each.subscriber) if each else 0)
            for name, each in owners.items()
        ],
        schema={"advert": pl.String, "advertiser": pl.String, "broadcast": pl.Int64, "subscriber": pl.Int64},
        orient="row",
    )
    frame = to_polars(heard.select(["advert", "audience"]))
    found = frame.join(known, on="advert", how="left", nulls_equal=True, maintain_order="left").with_columns(
        fee=pl.col("broadcast") + pl.col("subscriber") * pl.col("audience"),
        currency=pl.lit(billing.currency),
        reason=pl.when(pl.col("advertiser").is_null()).then(
            pl.lit("no advertiser of the billing file names this advert")
        ),
    )
    columns = found.select("advertiser", "currency", "reason").to_arrow()
    table = heard.append_column("advertiser", columns["advertiser"])
    table = table.append_column("fee", to_decimal(found["fee"].to_numpy()))
    for name in ("currency", "reason"):
        table = table.append_column(name, columns[name])
    return table.cast(PRICED)


def rounded_fees(fees: Whole, billing: Billing) -> pa.Array:
    """Sums of exact fees as they stand on a bill."""
    return to_decimal(rounded(fees, billing.digits, billing.rounding))
