"""Ads: group impressions into broadcasts, count the audience, compute the fee.

Impressions of an ad within `window_us` of the first one are one broadcast, at the time of the first. Its audience is
the subscribers with a session at that time, both ends included. Its fee is exact to the ten-thousandth; only the sum on
a bill is rounded.
"""

from itertools import pairwise

import numpy as np
import polars as pl

from broadloom.pipeline.analysis.frames import arrow, frame_us, table_us
from broadloom.pipeline.billing.config import BillingConfig
from broadloom.pipeline.billing.money import Ints, round_amounts, to_decimal, to_ten_thousandths
from broadloom.pipeline.table import (
    CHANNEL,
    COUNT,
    MONEY,
    TEXT,
    TIME,
    ChannelInputs,
    Stage,
    Table,
    TableColumn,
    TableSetting,
    TableSettingError,
    schema_of,
)
from broadloom.pipeline.tables.invoices import BILLING_FILE
from broadloom.record.arrow_import import pa

AD_WINDOW = TableSetting(
    "ad_window_s",
    60.0,
    "Impressions of an ad within this time of the first one count as one broadcast, which is charged once.",
)

COLUMNS = (
    CHANNEL,
    TableColumn("ad_name", TEXT, "Name of the ad."),
    TableColumn("group_id", TEXT, "Group it was broadcast in, if any."),
    TableColumn("topic", TEXT, "Topic of the ad, if known."),
    TableColumn("broadcast_time", TIME, "Time of the first impression."),
    TableColumn("impression_count", COUNT, "Recording peers that showed it."),
    TableColumn("audience_count", COUNT, "Subscribers connected at that moment."),
    TableColumn("advertiser", TEXT, "Advertiser that is charged; null if none."),
    TableColumn("fee", MONEY, "Price of the broadcast and of each subscriber reached, not rounded."),
    TableColumn("currency", TEXT, "Currency of the fee."),
    TableColumn("reason", TEXT, "Why nothing is charged; null if it is."),
)
WITH_FEES = schema_of(COLUMNS)

_KEYS = ["channel", "ad_name", "group_id", "topic"]

BROADCASTS: pa.Schema = pa.schema(
    [
        ("channel", pa.string()),
        ("ad_name", pa.string()),
        ("group_id", pa.string()),
        ("topic", pa.string()),
        ("broadcast_time", TIME),
        ("impression_count", pa.int64()),
    ]
)
WITH_AUDIENCE: pa.Schema = BROADCASTS.append(pa.field("audience_count", pa.int64()))


def broadcasts(impressions: pa.Table, window_us: int) -> pa.Table:
    """One row per broadcast. The table must hold all impressions of an ad, with `event_time` and `peer`."""
    frame = frame_us(impressions).sort([*_KEYS, "event_time"])
    keys = frame.select(_KEYS)
    starts_keys = keys.select(pl.any_horizontal(pl.all().ne_missing(pl.all().shift(1)))).to_series().fill_null(True)
    edges = [*np.flatnonzero(starts_keys.to_numpy() | (np.arange(len(frame)) == 0)).tolist(), len(frame)]
    times: Ints = frame["event_time"].to_numpy()
    is_first = np.zeros(len(frame), dtype=bool)
    for start, end in pairwise(edges):
        position = start
        while position < end:  # one iteration per broadcast: jump to the first impression outside its window
            is_first[position] = True
            position = start + int(np.searchsorted(times[start:end], times[position] + window_us, side="right"))
    found = (
        frame.with_columns(broadcast=pl.Series(np.cumsum(is_first)))
        .group_by("broadcast", maintain_order=True)
        .agg(
            *(pl.col(each).first() for each in _KEYS),
            broadcast_time=pl.col("event_time").first(),
            impression_count=pl.col("peer").n_unique().cast(pl.Int64),
        )
    )
    return table_us(found, BROADCASTS)


def add_audience(broadcasts: pa.Table, sessions: pa.Table) -> pa.Table:
    """Add the audience to the broadcasts of one channel.

    Sessions of a subscriber do not overlap, so sessions started minus sessions ended is the number of subscribers.
    """
    frame = frame_us(broadcasts)
    spans = frame_us(sessions.select(["start_time", "end_time"]))
    times: Ints = frame["broadcast_time"].to_numpy()
    started = np.searchsorted(np.sort(spans["start_time"].to_numpy()), times, side="right")
    ended = np.searchsorted(np.sort(spans["end_time"].to_numpy()), times, side="left")
    return broadcasts.append_column("audience_count", pl.Series(started - ended, dtype=pl.Int64).to_arrow()).cast(
        WITH_AUDIENCE
    )


def add_fees(broadcasts: pa.Table, billing: BillingConfig) -> pa.Table:
    """Add advertiser and fee. An ad without an advertiser costs nothing and carries a reason."""
    names = broadcasts["ad_name"].to_pylist()
    advertisers = {name: billing.advertiser(name or "") for name in dict.fromkeys(names)}
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
    frame = frame_us(broadcasts.select(["ad_name", "audience_count"]))
    found = frame.join(known, on="ad_name", how="left", nulls_equal=True, maintain_order="left").with_columns(
        fee=pl.col("broadcast_fee") + pl.col("subscriber_fee") * pl.col("audience_count"),
        currency=pl.lit(billing.currency),
        reason=pl.when(pl.col("advertiser").is_null()).then(pl.lit("no advertiser in the billing file lists this ad")),
    )
    columns = found.select("advertiser", "currency", "reason").to_arrow()
    table = broadcasts.append_column("advertiser", columns["advertiser"])
    table = table.append_column("fee", to_decimal(found["fee"].to_numpy()))
    for name in ("currency", "reason"):
        table = table.append_column(name, columns[name])
    return table.cast(WITH_FEES)


def round_fees(fees: Ints, billing: BillingConfig) -> pa.Array:
    """Round sums of exact fees for a bill."""
    return to_decimal(round_amounts(fees, billing.digits, billing.rounding))


def build(inputs: ChannelInputs) -> pa.Table:
    window_us = round(inputs.settings[AD_WINDOW.name] * 1_000_000)
    if window_us < 0:
        raise TableSettingError(f"{AD_WINDOW.name} must be 0 or more")
    found = broadcasts(arrow(inputs.scan("impressions")), window_us)
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
