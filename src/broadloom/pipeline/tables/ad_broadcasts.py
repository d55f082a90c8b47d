"""One row a broadcast of an advert: when, to how many, for how much.

What is charged is the audience at that moment: the subscribers with a session then, whether or not they record. Who
pays is in the billing file; an advert that is nobody's is here too, with the reason why nobody pays.
"""

from functools import partial
from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import ad_broadcasts as arrow
from broadloom.pipeline.billing.config import load
from broadloom.pipeline.partwise import cogroup_by_channel, map_by_key
from broadloom.pipeline.table import (
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
    "advert_spread_s",
    60.0,
    "Showings of an advert within this time of the first are one broadcast; so one is charged at most so often.",
)


def build(inputs: TableInputs) -> "DataFrame":
    billing = load(inputs.settings["billing"])
    spread_us = round(inputs.settings["advert_spread_s"] * 1_000_000)
    if spread_us < 0:
        raise TableSettingError("advert_spread_s has to be 0 or more")
    found = broadcasts(inputs.events, spread_us)
    sessions = inputs["sessions"].select("channel", "start", "end")

    def charged(found: pa.Table, sessions: pa.Table) -> pa.Table:
        # A channel without adverts has sessions all the same.
        return arrow.add_fees(arrow.add_audience(found, sessions), billing)

    return TABLE.conform(cogroup_by_channel(found, sessions, charged, arrow.WITH_FEES))


def broadcasts(events: "DataFrame", window_us: int) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    showings = events.where(F.col("kind") == EventKind.AD_IMPRESSION.value).select(
        "channel", F.col("name").alias("advert"), "`group`", "topic", "time", "observer"
    )
    function = partial(arrow.broadcasts, window_us=window_us)
    return map_by_key(showings, ("channel", "advert", "group", "topic"), function, arrow.BROADCASTS, showings.count())


TABLE = Table(
    "adverts",
    "Which advert reached how many, and what does that cost?",
    (
        TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
        TableColumn("advert", TEXT, "Name of the advert."),
        TableColumn("group", TEXT, "Group that it was broadcast in, if any."),
        TableColumn("topic", TEXT, "What it is about, if told."),
        TableColumn("time", TIME, "When it was broadcast: the first time that it was shown."),
        TableColumn("shown", COUNT, "Observers that showed it; those who do not record are not among them."),
        TableColumn("audience", COUNT, "Subscribers that were connected at that moment."),
        TableColumn("advertiser", TEXT, "Who pays; null if nobody does."),
        TableColumn("fee", MONEY, "Price of the broadcast, and of each subscriber reached; exact."),
        TableColumn("currency", TEXT, "Of the fee."),
        TableColumn("reason", TEXT, "Why nobody pays."),
    ),
    build,
    depends_on=("sessions",),
    settings=(BILLING_FILE, AD_WINDOW),
)
