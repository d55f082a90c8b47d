"""One row an advertiser, channel and month: what its adverts cost. The sum of exact fees, rounded once."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from broadloom.pipeline.arrow import ad_broadcasts as arrow
from broadloom.pipeline.billing.config import BillingConfig, load
from broadloom.pipeline.billing.money import from_decimal
from broadloom.pipeline.billing.months import months_column
from broadloom.pipeline.partwise import spark_schema
from broadloom.pipeline.table import COUNT, MONEY, TEXT, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.invoices import BILLING_FILE
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEYS = ("month", "channel", "advertiser", "currency")
_DATED: pa.Schema = pa.schema([*((name, pa.string()) for name in _KEYS), ("audience", pa.int64()), ("fee", MONEY)])


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    billing = load(inputs.settings["billing"])
    dated = inputs["adverts"].mapInArrow(_each(_dated, billing), spark_schema(_DATED))
    sums = dated.groupBy(*_KEYS).agg(
        F.count("*").alias("broadcasts"),
        F.sum("audience").alias("audience"),
        F.sum("fee").cast("DECIMAL(18, 4)").alias("exact"),
    )
    summed = TABLE.conform(sums.withColumn("fee", F.col("exact")).withColumn("zone", F.lit(billing.time_zone)))
    return summed.mapInArrow(_each(_rounded, billing), TABLE.ddl).orderBy("month", "channel", "advertiser")


def _dated(rows: pa.Table, billing: BillingConfig) -> pa.Table:
    columns = {name: rows[name] for name in _DATED.names if name != "month"}
    return (
        pa.table({"month": months_column(rows["time"], billing.time_zone), **columns}).select(_DATED.names).cast(_DATED)
    )


def _rounded(rows: pa.Table, billing: BillingConfig) -> pa.Table:
    fees = arrow.round_fees(from_decimal(rows["exact"]), billing)
    return rows.set_column(rows.schema.get_field_index("fee"), "fee", fees)


def _each(function: Any, billing: BillingConfig) -> Any:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield from function(pa.Table.from_batches([batch]), billing).to_batches()

    return run


TABLE = Table(
    "advert_fees",
    "What does each advertiser owe for which month?",
    (
        TableColumn("month", TEXT, "As YYYY-MM, in the time zone of the bill, by the time of the broadcast."),
        TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
        TableColumn("advertiser", TEXT, "Null for adverts that are nobody's."),
        TableColumn("broadcasts", COUNT, "How many broadcasts."),
        TableColumn("audience", COUNT, "Subscribers reached, summed over the broadcasts."),
        TableColumn("exact", MONEY, "Sum of the fees, before rounding."),
        TableColumn("fee", MONEY, "What is owed: the sum, rounded once by the rule of the billing file."),
        TableColumn("currency", TEXT, "Of the fee."),
        TableColumn("zone", TEXT, "Time zone in which the month was reckoned."),
    ),
    build,
    depends_on=("adverts",),
    settings=(BILLING_FILE,),
)
