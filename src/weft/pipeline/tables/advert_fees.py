"""One row an advertiser, channel and month: what its adverts cost. The sum of exact fees, rounded once."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from weft.pipeline.arrow import adverts as arrow
from weft.pipeline.arrow.money import from_decimal
from weft.pipeline.arrow.months import months_column
from weft.pipeline.partwise import spark_schema
from weft.pipeline.plans import Billing, load
from weft.pipeline.table import COUNT, MONEY, TEXT, Column, Inputs, Table
from weft.pipeline.tables.invoices import BILLING
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEYS = ("month", "channel", "advertiser", "currency")
_DATED: pa.Schema = pa.schema([*((name, pa.string()) for name in _KEYS), ("audience", pa.int64()), ("fee", MONEY)])


def build(inputs: Inputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    billing = load(inputs.settings["billing"])
    dated = inputs["adverts"].mapInArrow(_each(_dated, billing), spark_schema(_DATED))
    sums = dated.groupBy(*_KEYS).agg(
        F.count("*").alias("broadcasts"),
        F.sum("audience").alias("audience"),
        F.sum("fee").cast("DECIMAL(18, 4)").alias("exact"),
    )
    summed = TABLE.shaped(sums.withColumn("fee", F.col("exact")).withColumn("zone", F.lit(billing.zone)))
    return summed.mapInArrow(_each(_rounded, billing), TABLE.ddl).orderBy("month", "channel", "advertiser")


def _dated(rows: pa.Table, billing: Billing) -> pa.Table:
    columns = {name: rows[name] for name in _DATED.names if name != "month"}
    return pa.table({"month": months_column(rows["time"], billing.zone), **columns}).select(_DATED.names).cast(_DATED)


def _rounded(rows: pa.Table, billing: Billing) -> pa.Table:
    fees = arrow.rounded_fees(from_decimal(rows["exact"]), billing)
    return rows.set_column(rows.schema.get_field_index("fee"), "fee", fees)


def _each(function: Any, billing: Billing) -> Any:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield from function(pa.Table.from_batches([batch]), billing).to_batches()

    return run


TABLE = Table(
    "advert_fees",
    "What does each advertiser owe for which month?",
    (
        Column("month", TEXT, "As YYYY-MM, in the time zone of the bill, by the time of the broadcast."),
        Column("channel", TEXT, "First 16 digits of the channel's id."),
        Column("advertiser", TEXT, "Null for adverts that are nobody's."),
        Column("broadcasts", COUNT, "How many broadcasts."),
        Column("audience", COUNT, "Subscribers reached, summed over the broadcasts."),
        Column("exact", MONEY, "Sum of the fees, before rounding."),
        Column("fee", MONEY, "What is owed: the sum, rounded once by the rule of the billing file."),
        Column("currency", TEXT, "Of the fee."),
        Column("zone", TEXT, "Time zone in which the month was reckoned."),
    ),
    build,
    needs=("adverts",),
    settings=(BILLING,),
)
