"""Invoices and corrections: what a subscriber owes for a month in a channel, according to its plan.

An operator sells channels, so there is one invoice per channel. The billing file (`broadloom.pipeline.billing.config`)
holds prices, time zone, rounding rule and plans.

An invoice is issued once, when the tapes reach far enough beyond the end of its month. This is the one table whose
previous rows are an input: issued rows are taken over unchanged, from the previous run (`inputs["invoices"]`) or from
the folder named by the setting `issued_invoices`, and events that arrive late lead to a correction. The invoice ID is a
hash of everything billed, so the same bill has the same ID wherever it is created.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError
from broadloom.pipeline.arrow import invoices as arrow
from broadloom.pipeline.billing import months
from broadloom.pipeline.billing.config import BillingConfig, load
from broadloom.pipeline.partwise import map_by_key, spark_schema
from broadloom.pipeline.table import (
    CHANNEL,
    COUNT,
    EXACT_MS,
    MONEY,
    TEXT,
    TIME,
    Table,
    TableColumn,
    TableInputs,
    TableSetting,
)
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BILLING_FILE = TableSetting(
    "billing_file", "", "File of plans, subscribers and advertisers, as TOML or JSON; without it nothing is billed."
)
ISSUED_INVOICES = TableSetting(
    "issued_invoices", "", "Folder of Parquet files with issued invoices, used instead of those of the previous run."
)

ID_DIGITS = 32
_KEYS = ["channel", "subscriber", "billing_month"]
_HASHED = (
    *("kind", "correction_number", "billing_month", "channel", "subscriber", "plan_name", "connected_ms"),
    *("session_count", "amount", "currency", "time_zone", "terms", "corrected_invoice_id"),
)


class IssuedInvoicesError(BroadloomError):
    """The invoices issued before do not match the current billing file, or cannot be found."""


def build(inputs: TableInputs) -> "DataFrame":
    billing = load(inputs.settings[BILLING_FILE.name])
    issued = _issued(inputs, billing)
    state = _billing_state(inputs, billing, issued)
    new = state.mapInArrow(_new_invoices(billing), spark_schema(arrow.NEW_INVOICES))
    rows = issued.unionByName(TABLE.conform(_with_id(_with_connected_ms(new))))
    # One file in one order: the same invoices are the same bytes.
    return rows.repartition(1).sortWithinPartitions("billing_month", "channel", "subscriber", "correction_number")


def connected(sessions: "DataFrame", time_zone: str) -> "DataFrame":
    """Connect time by channel, subscriber and month."""
    function = partial(months.connected_by_month, time_zone=time_zone)
    spans = sessions.select("channel", "subscriber", "start_time", "end_time")
    return map_by_key(spans, ("channel", "subscriber"), function, months.CONNECTED, spans.count())


def _issued(inputs: TableInputs, billing: BillingConfig) -> "DataFrame":
    """Invoices and corrections of the previous run. Open and unbilled rows are computed again."""
    from pyspark.sql import functions as F  # noqa: N812

    folder = inputs.settings[ISSUED_INVOICES.name]
    if folder:
        if "://" not in folder and not Path(folder).is_dir():
            raise IssuedInvoicesError(
                f"no invoices found in {folder}; for a first run, leave {ISSUED_INVOICES.name} empty"
            )
        previous = inputs.spark.read.schema(TABLE.ddl).parquet(folder)
    elif TABLE.name in inputs:
        previous = inputs[TABLE.name]
    else:
        return inputs.spark.createDataFrame([], TABLE.ddl)
    rows = TABLE.conform(previous).where(F.col("kind").isin("invoice", "correction"))
    for row in rows.select("time_zone", "currency").distinct().collect():
        if (row["time_zone"], row["currency"]) != (billing.time_zone, billing.currency):
            raise IssuedInvoicesError(
                f"invoices were issued in {row['currency']} and time zone {row['time_zone']}, but the billing file has "
                f"{billing.currency or 'no currency'} and {billing.time_zone}; restore these values, or choose another "
                "--out to start over"
            )
    return rows


def _billing_state(inputs: TableInputs, billing: BillingConfig, issued: "DataFrame") -> "DataFrame":
    """What the tapes say about each month, next to what was issued for it."""
    from pyspark.sql import functions as F  # noqa: N812

    channels = inputs["channels"]
    tapes_end = channels.agg(F.max("end_time").alias("tapes_end_time"))
    current = connected(inputs["sessions"], billing.time_zone)
    flat = _flat_months(inputs, billing)
    if flat is not None:
        current = (
            current.unionByName(flat)
            .groupBy(*_KEYS)
            .agg(F.sum("connected_us").alias("connected_us"), F.sum("session_count").alias("session_count"))
        )
    before = issued.groupBy(*_KEYS).agg(
        F.count("*").alias("issued_count"),
        F.min_by("invoice_id", "correction_number").alias("issued_id"),
        F.min_by("plan_name", "correction_number").alias("issued_plan"),
        F.min_by("terms", "correction_number").alias("issued_terms"),
        (F.sum("connected_ms") * 1000).cast("BIGINT").alias("issued_us"),
        F.sum("session_count").alias("issued_sessions"),
        F.sum("amount").cast("DECIMAL(18, 4)").alias("issued_amount"),
        F.min("tape_start_time").alias("issued_tape_start_time"),
    )
    tape_start = channels.select("channel", F.col("start_time").alias("tape_start_time"))
    return (
        current.join(before, _KEYS, "full_outer")
        .join(F.broadcast(tape_start), "channel", "left")
        .crossJoin(F.broadcast(tapes_end))
        .na.fill(0, ["connected_us", "session_count"])
        .select(*arrow.BILLING_STATE.names)
    )


def _flat_months(inputs: TableInputs, billing: BillingConfig) -> "DataFrame | None":
    """Months that are due without any connect time: those of flat plans listed with a channel and a first month, up to
    the end of the tapes."""
    from pyspark.sql import functions as F  # noqa: N812

    flat = [
        each
        for each in billing.subscribers
        if each.channel and each.first_month and each.plan in billing.plans and billing.plans[each.plan].kind == "flat"
    ]
    if not flat:
        return None
    row = inputs["channels"].agg(F.unix_micros(F.max("end_time")).alias("end_us")).collect()[0]
    if row["end_us"] is None:
        return None
    latest = months.month_name(row["end_us"], billing.time_zone)
    due: list[dict[str, Any]] = []
    for each in flat:
        month = each.months[0]
        while month <= min(each.months[1], latest):
            key = {"channel": each.channel, "subscriber": each.name, "billing_month": month}
            due.append({**key, "connected_us": 0, "session_count": 0})
            month = months.add_months(month)
    return inputs.spark.createDataFrame(pa.Table.from_pylist(due, schema=months.CONNECTED))


def _new_invoices(billing: BillingConfig) -> Any:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield from arrow.new_invoices(pa.Table.from_batches([batch]), billing).to_batches()

    return run


def _with_connected_ms(rows: "DataFrame") -> "DataFrame":
    """Exact milliseconds, because money depends on them."""
    from pyspark.sql import functions as F  # noqa: N812

    exact = F.col("connected_us").cast("DECIMAL(20, 0)") / F.lit(1000).cast("DECIMAL(4, 0)")
    return rows.withColumn("connected_ms", exact.cast("DECIMAL(20, 3)"))


def _with_id(rows: "DataFrame") -> "DataFrame":
    """Hash everything billed as text, so that the ID does not depend on how a number is stored."""
    from pyspark.sql import functions as F  # noqa: N812

    content = F.to_json(F.struct(*(F.col(each).cast("STRING").alias(each) for each in _HASHED)))
    is_issued = F.col("kind").isin("invoice", "correction")
    return rows.withColumn("invoice_id", F.when(is_issued, F.substring(F.sha2(content, 256), 1, ID_DIGITS)))


TABLE = Table(
    "invoices",
    "Who owes how much for which month?",
    (
        TableColumn("invoice_id", TEXT, "Hash of everything billed, 32 hex digits; null if not issued."),
        TableColumn(
            "kind", TEXT, "`invoice`; `correction`; `open` (the month is not over); `unbilled` (see `reason`)."
        ),
        TableColumn("correction_number", COUNT, "0 for the invoice, then 1, 2 ... for its corrections."),
        TableColumn("billing_month", TEXT, "Month in the billing time zone, as YYYY-MM."),
        CHANNEL,
        TableColumn("subscriber", TEXT, "Subscriber, as in the table `sessions`."),
        TableColumn("plan_name", TEXT, "Name of the plan in the billing file."),
        TableColumn("connected_ms", EXACT_MS, "Connect time in the month; for a correction, the difference."),
        TableColumn("session_count", COUNT, "Sessions in the month; for a correction, the difference."),
        TableColumn("amount", MONEY, "Amount due, rounded once; for a correction, the difference. All rows add up."),
        TableColumn("currency", TEXT, "Currency of the amount."),
        TableColumn("time_zone", TEXT, "Time zone of the month."),
        TableColumn("start_time", TIME, "Start of the month."),
        TableColumn("end_time", TIME, "Start of the next month."),
        TableColumn("terms", TEXT, "Kind of plan, price, unit, digits and rounding rule, as JSON."),
        TableColumn("corrected_invoice_id", TEXT, "For a correction: the ID of the invoice."),
        TableColumn("reason", TEXT, "Why the row is unbilled."),
        TableColumn("tape_start_time", TIME, "Start of the channel's tapes when the row was written."),
    ),
    build,
    depends_on=("channels", "sessions"),
    settings=(BILLING_FILE, ISSUED_INVOICES),
    is_cumulative=True,
)
