"""One row an invoice or correction: what a subscriber owes for a month in a channel, by its plan.

A channel is what its operator sells, so there is an invoice for each channel. Prices, the months' time zone, the
rounding rule and who has which plan are in the billing file (`weft.pipeline.plans`).

An invoice is issued once, when the tapes reach far enough beyond the end of its month. This is the one table whose
former rows count: those that were issued are taken over as they are, from the run before (`inputs["invoices"]`, if
there was one) or from the folder that the setting `issued` names; what came late since is a correction beside them. The
id is a hash of all that is billed, so the same bill has the same id wherever it is drawn up.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import WeftError
from weft.pipeline.arrow import invoices as arrow
from weft.pipeline.arrow import months
from weft.pipeline.partwise import by_parts, spark_schema
from weft.pipeline.plans import Billing, load
from weft.pipeline.table import COUNT, MONEY, TEXT, TIME, Column, Inputs, Setting, Table
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BILLING = Setting("billing", "", "File of plans, subscribers and advertisers, in TOML or JSON; without it nobody pays.")
ISSUED = Setting(
    "issued", "", "Folder of Parquet with invoices that count as issued, instead of those of the run before."
)

ID_DIGITS = 32
_KEYS = ["channel", "subscriber", "month"]
_HASHED = (
    *("kind", "number", "month", "channel", "subscriber", "plan", "connected_us", "sessions"),
    *("amount", "currency", "zone", "terms", "corrects"),
)


class WrongIssued(WeftError):
    """The invoices issued before do not fit to what is asked for now."""


def build(inputs: Inputs) -> "DataFrame":
    billing = load(inputs.settings["billing"])
    issued = _issued(inputs, billing)
    standing = _standing(inputs, billing, issued)
    new = standing.mapInArrow(_each(billing), spark_schema(arrow.DRAWN))
    rows = issued.unionByName(TABLE.shaped(_with_id(new)))
    # One file in one order: the same invoices are the same bytes.
    return rows.repartition(1).sortWithinPartitions("month", "channel", "subscriber", "number")


def connected(sessions: "DataFrame", zone: str) -> "DataFrame":
    """Connect time by channel, subscriber and month."""
    function = partial(months.connected_by_month, zone=zone)
    spans = sessions.select("channel", "subscriber", "start", "end")
    return by_parts(spans, ("channel", "subscriber"), function, months.CONNECTED, spans.count())


def _issued(inputs: Inputs, billing: Billing) -> "DataFrame":
    """Invoices and corrections of the run before; what was open or unbilled then is reckoned anew."""
    from pyspark.sql import functions as F  # noqa: N812

    folder = inputs.settings["issued"]
    if folder:
        if "://" not in folder and not Path(folder).is_dir():
            raise WrongIssued(f"there are no invoices in {folder}; leave the setting issued empty for a first run")
        former = inputs.spark.read.schema(TABLE.ddl).parquet(folder)
    elif TABLE.name in inputs:
        former = inputs[TABLE.name]
    else:
        return inputs.spark.createDataFrame([], TABLE.ddl)
    rows = TABLE.shaped(former).where(F.col("kind").isin("invoice", "correction"))
    for row in rows.select("zone", "currency").distinct().collect():
        if (row["zone"], row["currency"]) != (billing.zone, billing.currency):
            raise WrongIssued(
                f"invoices were issued in {row['currency']} and zone {row['zone']}, but the billing file says "
                f"{billing.currency or 'no currency'} and {billing.zone}; keep these, or begin anew with another --out"
            )
    return rows


def _standing(inputs: Inputs, billing: Billing, issued: "DataFrame") -> "DataFrame":
    """What the tapes say of each month, beside what was issued for it."""
    from pyspark.sql import functions as F  # noqa: N812

    channels = inputs["channels"]
    until = channels.agg(F.max("last").alias("tapes_until"))
    now = connected(inputs["sessions"], billing.zone)
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
        .select(*arrow.STANDING.names)
    )


def _flat_months(inputs: Inputs, billing: Billing) -> "DataFrame | None":
    """Months that are owed without having been connected: of a flat plan, in a channel and since a month that are
    listed, as far as the tapes reach."""
    from pyspark.sql import functions as F  # noqa: N812

    flat = [
        each
        for each in billing.subscribers
        if each.channel and each.since and each.plan in billing.plans and billing.plans[each.plan].kind == "flat"
    ]
    if not flat:
        return None
    row = inputs["channels"].agg(F.unix_micros(F.max("last")).alias("last")).collect()[0]
    if row["last"] is None:
        return None
    latest = months.name_of(row["last"], billing.zone)
    owing: list[dict[str, Any]] = []
    for each in flat:
        month = each.months[0]
        while month <= min(each.months[1], latest):
            told = {"channel": each.channel, "subscriber": each.name, "month": month}
            owing.append({**told, "connected_us": 0, "sessions": 0})
            month = months.after(month)
    return inputs.spark.createDataFrame(pa.Table.from_pylist(owing, schema=months.CONNECTED))


def _each(billing: Billing) -> Any:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield from arrow.drawn(pa.Table.from_batches([batch]), billing).to_batches()

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
        Column("id", TEXT, "Of an invoice or correction: 32 digits, a hash of what is billed."),
        Column(
            "kind", TEXT, "invoice; correction of an issued one; open: the month is not over; unbilled: see the reason."
        ),
        Column("number", COUNT, "0 for the invoice, then 1, 2 ... for its corrections."),
        Column("month", TEXT, "As YYYY-MM, in the time zone of the bill."),
        Column("channel", TEXT, "First 16 digits of the channel's id."),
        Column("subscriber", TEXT, "As in sessions."),
        Column("plan", TEXT, "Its name in the billing file."),
        Column("connected_us", COUNT, "Microseconds connected in the month; of a correction, the difference."),
        Column("sessions", COUNT, "Sessions that touch the month; of a correction, the difference."),
        Column("amount", MONEY, "What is owed, rounded once; of a correction, the difference: all rows add up."),
        Column("currency", TEXT, "Of the amount."),
        Column("zone", TEXT, "Time zone in which the month was reckoned."),
        Column("begins", TIME, "When the month begins there."),
        Column("ends", TIME, "When the next one begins."),
        Column("terms", TEXT, "Kind of plan, price, unit, digits and rounding rule, as JSON."),
        Column("corrects", TEXT, "Of a correction: the id of its invoice."),
        Column("reason", TEXT, "Of an unbilled row: what is lacking."),
        Column("tape_from", TIME, "Where the channel's tape began when the row was made."),
    ),
    build,
    needs=("channels", "sessions"),
    settings=(BILLING, ISSUED),
    lasting=True,
)
