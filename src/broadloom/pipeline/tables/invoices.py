"""One row an invoice or correction: what a subscriber owes for a month in a channel, by its plan.

A channel is what its operator sells, so there is an invoice for each channel. Prices, the months' time zone, the
rounding rule and who has which plan are in the billing file (`broadloom.pipeline.billing.config`).

An invoice is issued once, when the tapes reach far enough beyond the end of its month. This is the one table whose
former rows count: those that were issued are taken over as they are, from the run before (`inputs["invoices"]`, if
there was one) or from the folder that the setting `issued` names; what came late since is a correction beside them. The
id is a hash of all that is billed, so the same bill has the same id wherever it is drawn up.
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
from broadloom.pipeline.table import COUNT, MONEY, TEXT, TIME, Table, TableColumn, TableInputs, TableSetting
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BILLING_FILE = TableSetting(
    "billing", "", "File of plans, subscribers and advertisers, in TOML or JSON; without it nobody pays."
)
ISSUED_INVOICES = TableSetting(
    "issued", "", "Folder of Parquet with invoices that count as issued, instead of those of the run before."
)

ID_DIGITS = 32
_KEYS = ["channel", "subscriber", "month"]
_HASHED = (
    *("kind", "number", "month", "channel", "subscriber", "plan", "connected_us", "sessions"),
    *("amount", "currency", "zone", "terms", "corrects"),
)


class IssuedInvoicesError(BroadloomError):
    """The invoices issued before do not fit to what is asked for now."""


def build(inputs: TableInputs) -> "DataFrame":
    billing = load(inputs.settings["billing"])
    issued = _issued(inputs, billing)
    standing = _billing_state(inputs, billing, issued)
    new = standing.mapInArrow(_each(billing), spark_schema(arrow.NEW_INVOICES))
    rows = issued.unionByName(TABLE.conform(_with_id(new)))
    # One file in one order: the same invoices are the same bytes.
    return rows.repartition(1).sortWithinPartitions("month", "channel", "subscriber", "number")


def connected(sessions: "DataFrame", time_zone: str) -> "DataFrame":
    """Connect time by channel, subscriber and month."""
    function = partial(months.connected_by_month, time_zone=time_zone)
    spans = sessions.select("channel", "subscriber", "start", "end")
    return map_by_key(spans, ("channel", "subscriber"), function, months.CONNECTED, spans.count())


def _issued(inputs: TableInputs, billing: BillingConfig) -> "DataFrame":
    """Invoices and corrections of the run before; what was open or unbilled then is reckoned anew."""
    from pyspark.sql import functions as F  # noqa: N812

    folder = inputs.settings["issued"]
    if folder:
        if "://" not in folder and not Path(folder).is_dir():
            raise IssuedInvoicesError(
                f"there are no invoices in {folder}; leave the setting issued empty for a first run"
            )
        former = inputs.spark.read.schema(TABLE.ddl).parquet(folder)
    elif TABLE.name in inputs:
        former = inputs[TABLE.name]
    else:
        return inputs.spark.createDataFrame([], TABLE.ddl)
    rows = TABLE.conform(former).where(F.col("kind").isin("invoice", "correction"))
    for row in rows.select("zone", "currency").distinct().collect():
        if (row["zone"], row["currency"]) != (billing.time_zone, billing.currency):
            raise IssuedInvoicesError(
                f"invoices were issued in {row['currency']} and zone {row['zone']}, but the billing file "
                f"says {billing.currency or 'no currency'} and {billing.time_zone}; keep these, or begin anew with "
                "another --out"
            )
    return rows


def _billing_state(inputs: TableInputs, billing: BillingConfig, issued: "DataFrame") -> "DataFrame":
    """What the tapes say of each month, beside what was issued for it."""
    from pyspark.sql import functions as F  # noqa: N812

    channels = inputs["channels"]
    until = channels.agg(F.max("last").alias("tapes_until"))
    now = connected(inputs["sessions"], billing.time_zone)
    owing = _flat_months(inputs, billing)
    if owing is not None:
        now = (
            now.unionByName(owing)
            .groupBy(*_KEYS)
            .agg(F.sum("connected_us").alias("connected_us"), F.sum("sessions").alias("sessions"))
        )
    before = issued.groupBy(*_KEYS).agg(
        F.count("*").alias("issued"),
        F.min_by("id", "number").alias("issued_id"),
        F.min_by("plan", "number").alias("issued_plan"),
        F.min_by("terms", "number").alias("issued_terms"),
        F.sum("connected_us").alias("issued_us"),
        F.sum("sessions").alias("issued_sessions"),
        F.sum("amount").cast("DECIMAL(18, 4)").alias("issued_amount"),
        F.min("tape_from").alias("issued_tape_from"),
    )
    tape_from = channels.select("channel", F.col("first").alias("tape_from"))
    return (
        now.join(before, _KEYS, "full_outer")
        .join(F.broadcast(tape_from), "channel", "left")
        .crossJoin(F.broadcast(until))
        .na.fill(0, ["connected_us", "sessions"])
        .select(*arrow.BILLING_STATE.names)
    )


def _flat_months(inputs: TableInputs, billing: BillingConfig) -> "DataFrame | None":
    """Months that are owed without having been connected: of a flat plan, in a channel and since a month that are
    listed, as far as the tapes reach."""
    from pyspark.sql import functions as F  # noqa: N812

    flat = [
        each
        for each in billing.subscribers
        if each.channel and each.first_month and each.plan in billing.plans and billing.plans[each.plan].kind == "flat"
    ]
    if not flat:
        return None
    row = inputs["channels"].agg(F.unix_micros(F.max("last")).alias("last")).collect()[0]
    if row["last"] is None:
        return None
    latest = months.month_name(row["last"], billing.time_zone)
    owing: list[dict[str, Any]] = []
    for each in flat:
        month = each.months[0]
        while month <= min(each.months[1], latest):
            told = {"channel": each.channel, "subscriber": each.name, "month": month}
            owing.append({**told, "connected_us": 0, "sessions": 0})
            month = months.add_months(month)
    return inputs.spark.createDataFrame(pa.Table.from_pylist(owing, schema=months.CONNECTED))


def _each(billing: BillingConfig) -> Any:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield from arrow.new_invoices(pa.Table.from_batches([batch]), billing).to_batches()

    return run


def _with_id(rows: "DataFrame") -> "DataFrame":
    """The hash of all that is billed, as text, so that it does not depend on how a number is stored."""
    from pyspark.sql import functions as F  # noqa: N812

    told = F.to_json(F.struct(*(F.col(each).cast("STRING").alias(each) for each in _HASHED)))
    is_issued = F.col("kind").isin("invoice", "correction")
    return rows.withColumn("id", F.when(is_issued, F.substring(F.sha2(told, 256), 1, ID_DIGITS)))


TABLE = Table(
    "invoices",
    "Who owes how much for which month?",
    (
        TableColumn("id", TEXT, "Of an invoice or correction: 32 digits, a hash of what is billed."),
        TableColumn(
            "kind", TEXT, "invoice; correction of an issued one; open: the month is not over; unbilled: see the reason."
        ),
        TableColumn("number", COUNT, "0 for the invoice, then 1, 2 ... for its corrections."),
        TableColumn("month", TEXT, "As YYYY-MM, in the time zone of the bill."),
        TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
        TableColumn("subscriber", TEXT, "As in sessions."),
        TableColumn("plan", TEXT, "Its name in the billing file."),
        TableColumn("connected_us", COUNT, "Microseconds connected in the month; of a correction, the difference."),
        TableColumn("sessions", COUNT, "Sessions that touch the month; of a correction, the difference."),
        TableColumn("amount", MONEY, "What is owed, rounded once; of a correction, the difference: all rows add up."),
        TableColumn("currency", TEXT, "Of the amount."),
        TableColumn("zone", TEXT, "Time zone in which the month was reckoned."),
        TableColumn("begins", TIME, "When the month begins there."),
        TableColumn("ends", TIME, "When the next one begins."),
        TableColumn("terms", TEXT, "Kind of plan, price, unit, digits and rounding rule, as JSON."),
        TableColumn("corrects", TEXT, "Of a correction: the id of its invoice."),
        TableColumn("reason", TEXT, "Of an unbilled row: what is lacking."),
        TableColumn("tape_from", TIME, "Where the channel's tape began when the row was made."),
    ),
    build,
    depends_on=("channels", "sessions"),
    settings=(BILLING_FILE, ISSUED_INVOICES),
    is_cumulative=True,
)
