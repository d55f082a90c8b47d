"""What each advertiser owes per channel and month: the sum of unrounded fees, rounded once."""

import polars as pl

from broadloom.pipeline.analysis.frames import frame, to_schema
from broadloom.pipeline.billing.config import BillingConfig
from broadloom.pipeline.billing.money import from_decimal, to_decimal
from broadloom.pipeline.billing.months import months_column
from broadloom.pipeline.table import CHANNEL, COUNT, MONEY, TEXT, ChannelInputs, Stage, Table, TableColumn, schema_of
from broadloom.pipeline.tables.ad_broadcasts import round_fees
from broadloom.pipeline.tables.invoices import BILLING_FILE
from broadloom.record.arrow_import import pa

_KEYS = ["billing_month", "channel", "advertiser", "currency"]

COLUMNS = (
    TableColumn("billing_month", TEXT, "Month of the broadcast in the billing time zone, as YYYY-MM."),
    CHANNEL,
    TableColumn("advertiser", TEXT, "Null for ads without an advertiser."),
    TableColumn("broadcast_count", COUNT, "Number of broadcasts."),
    TableColumn("audience_count", COUNT, "Subscribers reached, summed over the broadcasts."),
    TableColumn("fee_unrounded", MONEY, "Sum of the fees before rounding."),
    TableColumn("fee", MONEY, "Amount due: the sum, rounded once by the rule in the billing file."),
    TableColumn("currency", TEXT, "Currency of the fee."),
    TableColumn("time_zone", TEXT, "Time zone of the month."),
)


def ad_fees(broadcasts: pa.Table, billing: BillingConfig) -> pa.Table:
    rows = frame(broadcasts.drop_columns(["fee"])).with_columns(
        billing_month=pl.Series(pl.from_arrow(months_column(broadcasts["broadcast_time"], billing.time_zone))),
        # Money is summed as whole ten-thousandths.
        fee=pl.Series(from_decimal(broadcasts["fee"]), dtype=pl.Int64),
    )
    sums = rows.group_by(_KEYS).agg(
        broadcast_count=pl.len(), audience_count=pl.col("audience_count").sum(), fee=pl.col("fee").sum()
    )
    sums = sums.sort("billing_month", "channel", "advertiser").with_columns(time_zone=pl.lit(billing.time_zone))
    table = to_schema(sums.drop("fee"), schema_of(COLUMNS))
    fees = sums["fee"].to_numpy()
    for name, amounts in (("fee_unrounded", to_decimal(fees)), ("fee", round_fees(fees, billing))):
        table = table.set_column(table.schema.get_field_index(name), name, amounts)
    return table


def build(inputs: ChannelInputs) -> pa.Table:
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
