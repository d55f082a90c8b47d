"""One row a broadcast of an advert: when, to how many, for how much.

What is charged is the audience at that moment: the subscribers with a session then, whether or not they record. Who
pays is in the billing file; an advert that is nobody's is here too, with the reason why nobody pays.
"""

from functools import partial
from typing import TYPE_CHECKING

from weft.pipeline.arrow import adverts as arrow
from weft.pipeline.partwise import both_by_channel, by_parts
from weft.pipeline.plans import load
from weft.pipeline.table import COUNT, MONEY, TEXT, TIME, Column, Inputs, Setting, Table, WrongSetting
from weft.pipeline.tables.invoices import BILLING
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPREAD = Setting(
    "advert_spread_s",
    60.0,
    "Showings of an advert within this time of the first are one broadcast; so one is charged at most so often.",
)


def build(inputs: Inputs) -> "DataFrame":
    billing = load(inputs.settings["billing"])
    spread_us = round(inputs.settings["advert_spread_s"] * 1_000_000)
    if spread_us < 0:
        raise WrongSetting("advert_spread_s has to be 0 or more")
    found = broadcasts(inputs.events, spread_us)
    sessions = inputs["sessions"].select("channel", "start", "end")

    def charged(found: pa.Table, sessions: pa.Table) -> pa.Table:
        # A channel without adverts has sessions all the same.
        return arrow.priced(arrow.heard(found, sessions), billing)

    return TABLE.shaped(both_by_channel(found, sessions, charged, arrow.PRICED))


def broadcasts(events: "DataFrame", spread_us: int) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    showings = events.where(F.col("kind") == "advert").select(
        "channel", F.col("name").alias("advert"), "`group`", "topic", "time", "observer"
    )
    function = partial(arrow.broadcasts, spread_us=spread_us)
    return by_parts(showings, ("channel", "advert", "group", "topic"), function, arrow.BROADCASTS, showings.count())


TABLE = Table(
    "adverts",
    "Which advert reached how many, and what does that cost?",
    (
        Column("channel", TEXT, "First 16 digits of the channel's id."),
        Column("advert", TEXT, "Name of the advert."),
        Column("group", TEXT, "Group that it was broadcast in, if any."),
        Column("topic", TEXT, "What it is about, if told."),
        Column("time", TIME, "When it was broadcast: the first time that it was shown."),
        Column("shown", COUNT, "Observers that showed it; those who do not record are not among them."),
        Column("audience", COUNT, "Subscribers that were connected at that moment."),
        Column("advertiser", TEXT, "Who pays; null if nobody does."),
        Column("fee", MONEY, "Price of the broadcast, and of each subscriber reached; exact."),
        Column("currency", TEXT, "Of the fee."),
        Column("reason", TEXT, "Why nobody pays."),
    ),
    build,
    needs=("sessions",),
    settings=(BILLING, SPREAD),
)
