"""One row per broadcast of an ad: when, to how many subscribers, at what price.

The charge follows the audience at that moment: all subscribers with a session, whether or not they record. The billing
file names the advertisers. An ad without an advertiser is listed too, with the reason why it is not charged.
"""

from functools import partial
from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import ad_broadcasts as arrow
from broadloom.pipeline.billing.config import load
from broadloom.pipeline.partwise import cogroup_by_channel, map_by_key
from broadloom.pipeline.table import (
    CHANNEL,
    COUNT,
    MONEY,
    TEXT,
    TIME,
    Table,
    TableColumn,
    TableInputs,
    TableSetting,
    TableSettingError,
)
from broadloom.pipeline.tables.invoices import BILLING_FILE
from broadloom.record.arrow_import import pa
from broadloom.record.schema import EventKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AD_WINDOW = TableSetting(
    "ad_window_s",
    60.0,
    "Impressions of an ad within this time of the first one count as one broadcast, which is charged once.",
)


def build(inputs: TableInputs) -> "DataFrame":
    billing = load(inputs.settings[BILLING_FILE.name])
    window_us = round(inputs.settings[AD_WINDOW.name] * 1_000_000)
    if window_us < 0:
        raise TableSettingError(f"{AD_WINDOW.name} must be 0 or more")
    found = broadcasts(inputs.events, window_us)
    sessions = inputs["sessions"].select("channel", "start_time", "end_time")

    def charged(found: pa.Table, sessions: pa.Table) -> pa.Table:
        return arrow.add_fees(arrow.add_audience(found, sessions), billing)

    return TABLE.conform(cogroup_by_channel(found, sessions, charged, arrow.WITH_FEES))


def broadcasts(events: "DataFrame", window_us: int) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    impressions = events.where(F.col("kind") == EventKind.AD_IMPRESSION.value).select(
        "channel", F.col("name").alias("ad_name"), "group_id", "topic", "event_time", "peer"
    )
    function = partial(arrow.broadcasts, window_us=window_us)
    keys = ("channel", "ad_name", "group_id", "topic")
    return map_by_key(impressions, keys, function, arrow.BROADCASTS, impressions.count())


TABLE = Table(
    "ad_broadcasts",
    "Which ad reached how many subscribers, and what does it cost?",
    (
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
    ),
    build,
    depends_on=("sessions",),
    settings=(BILLING_FILE, AD_WINDOW),
)
