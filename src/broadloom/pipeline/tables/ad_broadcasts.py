"""Ads: group impressions into broadcasts, count the audience, compute the fee.

Impressions of an ad within `window_us` of the first one are one broadcast, at the time of the first. Its audience is
the subscribers with a session at that time, both ends included; if subscribers have identified themselves for its
topic, those of the topic. Its fee is exact to the ten-thousandth; only the sum on
a bill is rounded.
"""

from itertools import pairwise

import numpy as np
import polars as pl

from broadloom.pipeline.analysis.frames import conform, in_us
from broadloom.pipeline.billing.config import BillingConfig
from broadloom.pipeline.billing.money import Ints, round_amounts, to_decimal, to_ten_thousandths
from broadloom.pipeline.table import (
    CHANNEL,
    MONEY,
    ChannelInputs,
    Stage,
    Table,
    TableSetting,
    TableSettingError,
    column,
)
from broadloom.pipeline.tables.invoices import BILLING_FILE

AD_WINDOW = TableSetting(
    "ad_window_s",
    60.0,
    "Impressions of an ad within this time of the first one count as one broadcast, which is charged once.",
)

COLUMNS = (
    CHANNEL,
    column("ad_name", "Name of the ad."),
    column("group_id", "Group it was broadcast in, if any."),
    column("topic", "Topic of the ad, if known."),
    column("broadcast_time", "Time of the first impression."),
    column("impression_count", "Recording peers that showed it."),
    column("audience_count", "Subscribers connected at that moment."),
    column("advertiser", "Advertiser that is charged; null if none."),
    column("fee", "Price of the broadcast and of each subscriber reached, not rounded.", MONEY),
    column("currency", "Currency of the fee."),
    column("reason", "Why nothing is charged; null if it is."),
)

_KEYS = ["channel", "ad_name", "group_id", "topic"]


def broadcasts(impressions: pl.DataFrame, window_us: int) -> pl.DataFrame:
    """One row per broadcast. The frame must hold all impressions of an ad, with `event_time` and `peer`."""
    shown = in_us(impressions).sort([*_KEYS, "event_time"])
    keys = shown.select(_KEYS)
    starts_keys = keys.select(pl.any_horizontal(pl.all().ne_missing(pl.all().shift(1)))).to_series().fill_null(True)
    edges = [*np.flatnonzero(starts_keys.to_numpy() | (np.arange(len(shown)) == 0)).tolist(), len(shown)]
    times: Ints = shown["event_time"].to_numpy()
    is_first = np.zeros(len(shown), dtype=bool)
    for start, end in pairwise(edges):
        position = start
        while position < end:  # one iteration per broadcast: jump to the first impression outside its window
            is_first[position] = True
            position = start + int(np.searchsorted(times[start:end], times[position] + window_us, side="right"))
    return (
        shown.with_columns(broadcast=pl.Series(np.cumsum(is_first)))
        .group_by("broadcast", maintain_order=True)
        .agg(
            *(pl.col(each).first() for each in _KEYS),
            broadcast_time=pl.col("event_time").first(),
            impression_count=pl.col("peer").n_unique().cast(pl.Int64),
        )
        .drop("broadcast")
    )


def add_audience(broadcasts: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Add the audience to the broadcasts of one channel."""
    sessions = in_us(sessions)
    has_topics = "topic" in sessions.columns
    times: Ints = broadcasts["broadcast_time"].to_numpy()
    topics = broadcasts["topic"].to_list()
    counts = np.zeros(len(times), dtype=np.int64)
    for topic in dict.fromkeys(topics):
        chosen = np.array([each == topic for each in topics], dtype=bool)
        own = sessions.filter(pl.col("topic") == topic) if has_topics and topic is not None else sessions.clear()
        spans = own if own.height else _merged(sessions)
        # They do not overlap for one subscriber, so those started minus those ended is the number of subscribers.
        started = np.searchsorted(np.sort(spans["start_time"].to_numpy()), times[chosen], side="right")
        ended = np.searchsorted(np.sort(spans["end_time"].to_numpy()), times[chosen], side="left")
        counts[chosen] = started - ended
    return broadcasts.with_columns(audience_count=pl.Series(counts, dtype=pl.Int64))


def _merged(sessions: pl.DataFrame) -> pl.DataFrame:
    """Sessions of a subscriber in several topics may overlap."""
    if "subscriber" not in sessions.columns:
        return sessions
    ordered = sessions.sort("subscriber", "start_time", "end_time")
    before = pl.col("end_time").cum_max().shift(1).over("subscriber")
    starts = (pl.col("start_time") > before).fill_null(True)
    return (
        ordered.with_columns(span=starts.cum_sum())
        .group_by("span", maintain_order=True)
        .agg(pl.col("start_time").min(), pl.col("end_time").max())
    )


def add_fees(broadcasts: pl.DataFrame, billing: BillingConfig) -> pl.DataFrame:
    """Add advertiser and fee. An ad without an advertiser costs nothing and carries a reason."""
    advertisers = {name: billing.advertiser(name or "") for name in broadcasts["ad_name"].unique(maintain_order=True)}
    known = pl.DataFrame(
        [
            (
                name,
                each and each.name,
                to_ten_thousandths(each.broadcast_fee) if each else 0,
                to_ten_thousandths(each.subscriber_fee) if each else 0,
            )
            for name, each in advertisers.items()
        ],
        schema={"ad_name": pl.String, "advertiser": pl.String, "broadcast_fee": pl.Int64, "subscriber_fee": pl.Int64},
        orient="row",
    )
    found = broadcasts.join(known, on="ad_name", how="left", nulls_equal=True, maintain_order="left")
    fees = found["broadcast_fee"] + found["subscriber_fee"] * found["audience_count"]
    return conform(
        found.with_columns(
            fee=to_decimal(fees.to_numpy()),
            currency=pl.lit(billing.currency),
            reason=pl.when(pl.col("advertiser").is_null()).then(
                pl.lit("no advertiser in the billing file lists this ad")
            ),
        ),
        COLUMNS,
    )


def round_fees(fees: Ints, billing: BillingConfig) -> pl.Series:
    """Round sums of exact fees for a bill."""
    return to_decimal(round_amounts(fees, billing.digits, billing.rounding))


def build(inputs: ChannelInputs) -> pl.DataFrame:
    window_us = round(inputs.settings[AD_WINDOW.name] * 1_000_000)
    if window_us < 0:
        raise TableSettingError(f"{AD_WINDOW.name} must be 0 or more")
    found = broadcasts(inputs.scan("impressions"), window_us)
    return add_fees(add_audience(found, inputs["sessions"]), inputs.billing)


TABLE = Table(
    "ad_broadcasts",
    "Which ad reached how many subscribers, and what does it cost?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("sessions",),
    settings=(BILLING_FILE, AD_WINDOW),
)
