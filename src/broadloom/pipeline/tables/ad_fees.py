"""What each advertiser owes per channel and month: the sum of unrounded fees, rounded once."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from broadloom.pipeline.arrow import ad_broadcasts as arrow
from broadloom.pipeline.billing.config import BillingConfig, load
from broadloom.pipeline.billing.money import from_decimal
from broadloom.pipeline.billing.months import months_column
from broadloom.pipeline.partwise import spark_schema
from broadloom.pipeline.table import CHANNEL, COUNT, MONEY, TEXT, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.invoices import BILLING_FILE
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEYS = ("billing_month", "channel", "advertiser", "currency")
_BY_MONTH: pa.Schema = pa.schema(
    [*((name, pa.string()) for name in _KEYS), ("audience_count", pa.int64()), ("fee", MONEY)]
)


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    billing = load(inputs.settings[BILLING_FILE.name])
    by_month = inputs["ad_broadcasts"].mapInArrow(_map_batches(_with_month, billing), spark_schema(_BY_MONTH))
    sums = by_month.groupBy(*_KEYS).agg(
        F.count("*").alias("broadcast_count"),
        F.sum("audience_count").alias("audience_count"),
        F.sum("fee").cast("DECIMAL(18, 4)").alias("fee_unrounded"),
    )
    sums = sums.withColumn("fee", F.col("fee_unrounded")).withColumn("time_zone", F.lit(billing.time_zone))
    rounded = TABLE.conform(sums).mapInArrow(_map_batches(_with_rounded_fee, billing), TABLE.ddl)
    return rounded.orderBy("billing_month", "channel", "advertiser")


def _with_month(rows: pa.Table, billing: BillingConfig) -> pa.Table:
    columns = {name: rows[name] for name in _BY_MONTH.names if name != "billing_month"}
    month = months_column(rows["broadcast_time"], billing.time_zone)
    return pa.table({"billing_month": month, **columns}).select(_BY_MONTH.names).cast(_BY_MONTH)


def _with_rounded_fee(rows: pa.Table, billing: BillingConfig) -> pa.Table:
    fees = arrow.round_fees(from_decimal(rows["fee_unrounded"]), billing)
    return rows.set_column(rows.schema.get_field_index("fee"), "fee", fees)


def _map_batches(function: Any, billing: BillingConfig) -> Any:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield from function(pa.Table.from_batches([batch]), billing).to_batches()

    return run


TABLE = Table(
    "ad_fees",
    "What does each advertiser owe per month?",
    (
        TableColumn("billing_month", TEXT, "Month of the broadcast in the billing time zone, as YYYY-MM."),
        CHANNEL,
        TableColumn("advertiser", TEXT, "Null for ads without an advertiser."),
        TableColumn("broadcast_count", COUNT, "Number of broadcasts."),
        TableColumn("audience_count", COUNT, "Subscribers reached, summed over the broadcasts."),
        TableColumn("fee_unrounded", MONEY, "Sum of the fees before rounding."),
        TableColumn("fee", MONEY, "Amount due: the sum, rounded once by the rule in the billing file."),
        TableColumn("currency", TEXT, "Currency of the fee."),
        TableColumn("time_zone", TEXT, "Time zone of the month."),
    ),
    build,
    depends_on=("ad_broadcasts",),
    settings=(BILLING_FILE,),
)
