"""What each advertiser owes per channel and month: the sum of unrounded fees, rounded once."""

import polars as pl

from broadloom.pipeline.analysis.frames import conform, in_us
from broadloom.pipeline.billing.config import BillingConfig
from broadloom.pipeline.billing.money import from_decimal, to_decimal
from broadloom.pipeline.billing.months import months_column
from broadloom.pipeline.table import CHANNEL, MONEY, ChannelInputs, Stage, Table, column
from broadloom.pipeline.tables.ad_broadcasts import round_fees
from broadloom.pipeline.tables.invoices import BILLING_FILE

_KEYS = ["billing_month", "channel", "advertiser", "currency"]

COLUMNS = (
    column("billing_month", "Month of the broadcast in the billing time zone, as YYYY-MM."),
    CHANNEL,
    column("advertiser", "Null for ads without an advertiser."),
    column("broadcast_count", "Number of broadcasts."),
    column("audience_count", "Subscribers reached, summed over the broadcasts."),
    column("fee_unrounded", "Sum of the fees before rounding.", MONEY),
    column("fee", "Amount due: the sum, rounded once by the rule in the billing file.", MONEY),
    column("currency", "Currency of the fee."),
    column("time_zone", "Time zone of the month."),
)


def ad_fees(broadcasts: pl.DataFrame, billing: BillingConfig) -> pl.DataFrame:
    rows = in_us(broadcasts).with_columns(
        billing_month=months_column(in_us(broadcasts)["broadcast_time"], billing.time_zone),
        # Money is summed as whole ten-thousandths.
        fee=from_decimal(broadcasts["fee"]),
    )
    sums = rows.group_by(_KEYS).agg(
        broadcast_count=pl.len(), audience_count=pl.col("audience_count").sum(), fee=pl.col("fee").sum()
    )
    sums = sums.sort("billing_month", "channel", "advertiser")
    fees = sums["fee"].to_numpy()
    sums = sums.with_columns(
        fee_unrounded=to_decimal(fees), fee=round_fees(fees, billing), time_zone=pl.lit(billing.time_zone)
    )
    return conform(sums, COLUMNS)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return ad_fees(inputs["ad_broadcasts"], inputs.billing)


TABLE = Table(
    "ad_fees",
    "What does each advertiser owe per month?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("ad_broadcasts",),
    settings=(BILLING_FILE,),
)
