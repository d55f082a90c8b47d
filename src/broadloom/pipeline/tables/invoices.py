"""Computes new invoices, corrections of issued ones, and rows that cannot be billed yet.

An issued invoice never changes. A correction is the difference between what the month costs now and everything issued
for it so far, under the terms stored in the first invoice. Nothing is dropped: a subscriber without a plan is listed as
`unbilled` with the reason, and a month that is not over as `open`.

Billed are subscribers that identified themselves, and holders of a ticket that a recorder had in its roster. A
subscriber that changes its plan within a month has one row for each part of the month (`billing/periods.py`).
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from broadloom.errors import BroadloomError
from broadloom.pipeline.analysis.frames import conform, frame, from_rows, in_us
from broadloom.pipeline.billing import months, periods, terms
from broadloom.pipeline.billing.config import BillingConfig
from broadloom.pipeline.billing.export import ISSUED
from broadloom.pipeline.billing.money import Ints, amount_due, from_decimal, to_decimal
from broadloom.pipeline.billing.sales import SALE, new_sales
from broadloom.pipeline.table import CHANNEL, EXACT_MS, MONEY, Stage, Table, TableSetting, column
from broadloom.record.arrow_import import pq


class IssuedInvoicesError(BroadloomError):
    """The invoices issued before do not match the current billing file, or cannot be found."""


BILLING_FILE = TableSetting(
    "billing_file", "", "File of plans, subscribers and advertisers, as TOML or JSON; without it nothing is billed."
)
ISSUED_INVOICES = TableSetting(
    "issued_invoices", "", "Directory of Parquet files with issued invoices, used instead of those of the previous run."
)
ID_DIGITS = 32
_KEYS = months.PERIOD_KEYS
_MEASURES = ("connected_us", "session_count", "message_count", "payload_bytes")
_HASHED = (
    *("kind", "correction_number", "billing_month", "channel", "subscriber", "topic", "plan_name", "connected_ms"),
    *("session_count", "message_count", "payload_bytes"),
    *("amount", "currency", "time_zone", "terms", "corrected_invoice_id"),
)
_BY_MESSAGES = ("message", "byte")

COLUMNS = (
    column("invoice_id", "Hash of everything billed, 32 hex digits; null if not issued."),
    column(
        "kind",
        "`invoice`; `correction`; `open` (the month is not over); `unbilled` (see `reason`); `sale` (the fee for a lot "
        "sold in an auction).",
    ),
    column("correction_number", "0 for the invoice, then 1, 2 ... for its corrections."),
    column("billing_month", "Month in the billing time zone, as YYYY-MM."),
    CHANNEL,
    column("subscriber", "Subscriber, as in the table `sessions`."),
    column("topic", "Topic, as in the table `sessions`; null without one."),
    column("plan_name", "Name of the plan in the billing file."),
    column("connected_ms", "Connect time in the month; for a correction, the difference.", EXACT_MS),
    column("session_count", "Sessions in the month; for a correction, the difference."),
    column("message_count", "Messages in the month, for plans by message or byte; for a correction, the difference."),
    column("payload_bytes", "Their size; for a correction, the difference."),
    column("amount", "Amount due, rounded once; for a correction, the difference. All rows add up.", MONEY),
    column("currency", "Currency of the amount."),
    column("time_zone", "Time zone of the month."),
    column("start_time", "Start of the month, or of the part of it that is billed."),
    column("end_time", "End of the month, or of the part."),
    column("terms", "Kind of plan, price, tiers, unit, digits, rounding rule and billed days, as JSON."),
    column("corrected_invoice_id", "For a correction: the ID of the invoice."),
    column("reason", "Why the row is unbilled."),
    column("tape_start_time", "Start of the channel's tapes when the row was written."),
    column("is_proven", "Whether the subscriber's name is on a ticket; null without connect time."),
)


def new_invoices(billing_state: pl.DataFrame, billing: BillingConfig) -> pl.DataFrame:
    """The rows to add to the issued ones.

    `billing_state` has one row for each month of a subscriber in a channel: what the tapes say now (`connected_us`,
    `session_count`, `is_proven`), the start of the channel's tapes (`tape_start_time`) and the end of all tapes
    (`tapes_end_time`), and what was issued, null if nothing was: `issued_count`, `issued_id`, `issued_plan`,
    `issued_terms`, `issued_us`, `issued_sessions`, `issued_tape_start_time`, and `issued_amount` in ten-thousandths.
    Optional are `topic`, `first_day` (for a part of a month), `message_count`, `payload_bytes`, and these as issued.
    """
    frame = in_us(billing_state).with_columns(pl.col("issued_amount").fill_null(0), row=pl.int_range(pl.len()))
    optional = {"topic": pl.String(), "first_day": pl.Int64(), **dict.fromkeys(_OPTIONAL_COUNTS, pl.Int64())}
    frame = frame.with_columns(
        pl.lit(None, kind).alias(name) for name, kind in optional.items() if name not in frame.columns
    ).with_columns(pl.col(*_OPTIONAL_COUNTS).fill_null(0), pl.col("first_day").fill_null(1))
    frame = _with_plan(_with_bounds(frame, billing), billing)
    frame = frame.with_columns(pl.coalesce("issued_terms", "plan_terms").alias("terms"))
    frame = frame.with_columns(amount_due=pl.Series(_amount_due(frame), dtype=pl.Int64))
    is_new = pl.col("issued_count").is_null()
    is_over = pl.col("month_end") + billing.issue_after_s * 1_000_000 <= pl.col("tapes_end_time")
    # If tapes were removed since, the month cannot be computed any more, and nothing is taken back.
    is_complete = (pl.col("tape_start_time") <= pl.col("issued_tape_start_time")) | (
        pl.col("tape_start_time") <= pl.col("start_time")
    )
    is_changed = (pl.col("amount_due") != pl.col("issued_amount")) & is_complete
    kind = (
        pl.when(~is_new & is_changed)
        .then(pl.lit("correction"))
        .when(~is_new)
        .then(None)
        .when(pl.col("terms").is_null())
        .then(pl.lit("unbilled"))
        .when(is_over)
        .then(pl.lit("invoice"))
        .otherwise(pl.lit("open"))
    )
    frame = frame.with_columns(kind=kind).filter(pl.col("kind").is_not_null())
    metered = [each for each in frame["terms"].drop_nulls().unique() if terms.parse_terms(each).kind in _BY_MESSAGES]
    by_messages = pl.col("terms").is_in(metered).fill_null(False)
    frame = frame.with_columns(
        correction_number=pl.col("issued_count").fill_null(0),
        plan_name=pl.coalesce("issued_plan", "plan_name"),
        corrected_invoice_id=pl.col("issued_id"),
        connected_us=pl.col("connected_us") - pl.col("issued_us").fill_null(0),
        session_count=pl.col("session_count") - pl.col("issued_sessions").fill_null(0),
        message_count=pl.when(by_messages).then(pl.col("message_count") - pl.col("issued_messages")),
        payload_bytes=pl.when(by_messages).then(pl.col("payload_bytes") - pl.col("issued_bytes")),
        amount_due=pl.col("amount_due") - pl.col("issued_amount"),
        currency=pl.lit(billing.currency),
        time_zone=pl.lit(billing.time_zone),
        reason=pl.when(pl.col("kind") == "unbilled").then("reason"),
    ).sort("row")
    frame = frame.with_columns(
        amount=to_decimal(frame["amount_due"].to_numpy()),
        connected_ms=to_decimal(frame["connected_us"].to_numpy(), EXACT_MS),
    )
    rows = conform(frame, COLUMNS)
    return rows.with_columns(invoice_id=pl.Series([_invoice_id(row) for row in rows.to_dicts()], dtype=pl.String))


_OPTIONAL_COUNTS = ("message_count", "payload_bytes", "issued_messages", "issued_bytes")


def _with_bounds(frame: pl.DataFrame, billing: BillingConfig) -> pl.DataFrame:
    """Add `last_day`, `is_part`, and the bounds of the month or of the part of it: what was issued decides on the
    parts, else the billing file."""
    rows = frame.select(*_KEYS, "issued_terms").rows()
    found = [periods.bounds_of(row, billing) for row in rows]
    schema = {"last_day": pl.Int64, "is_part": pl.Boolean, "start_time": pl.Int64, "end_time": pl.Int64}
    return frame.hstack(pl.DataFrame(found, schema={**schema, "month_end": pl.Int64}, orient="row"))


def _with_plan(frame: pl.DataFrame, billing: BillingConfig) -> pl.DataFrame:
    """Add `plan_name`, `plan_terms`, and `reason` where there is no plan. A listing for the topic comes before one for
    the channel, that before a listing for all, and that before the default plan."""
    choose = periods.PlanChooser(billing)
    columns = ("subscriber", "channel", "topic", "billing_month", "first_day", "last_day", "is_part")
    found = [choose(*row) for row in frame.select(columns).rows()]
    schema = {"plan_name": pl.String, "plan_terms": pl.String}
    return frame.hstack(pl.DataFrame(found, schema=schema, orient="row")).with_columns(
        reason=pl.when(pl.col("plan_name").is_null())
        .then(pl.lit("the subscriber is not listed for this month, and there is no default plan"))
        .when(pl.col("plan_terms").is_null())
        .then(pl.format("there is no plan {} in the billing file", "plan_name"))
    )


def _amount_due(frame: pl.DataFrame) -> Ints:
    """What each row costs under its terms; 0 without terms."""
    amounts = np.zeros(len(frame), dtype=np.int64)
    connected: Ints = frame["connected_us"].to_numpy()
    messages: Ints = frame["message_count"].to_numpy()
    sizes: Ints = frame["payload_bytes"].to_numpy()
    texts = frame["terms"]
    for text in texts.drop_nulls().unique(maintain_order=True):
        same = (texts == text).fill_null(False).to_numpy()
        amounts[same] = amount_due(connected[same], terms.parse_terms(text), messages[same], sizes[same])
    return amounts


def build_invoices(
    tables: Mapping[str, pl.DataFrame],
    previous: pl.DataFrame | None,
    settings: Mapping[str, Any],
    billing: BillingConfig,
) -> pl.DataFrame:
    """All invoices, those issued before and the new ones, in one order: the same invoices are the same bytes.

    `tables` has those that invoices depend on, `previous` is this table as built before.
    """
    issued = _issued(previous, str(settings[ISSUED_INVOICES.name]), billing)
    is_sale = pl.col("kind") == SALE
    sold, issued = issued.filter(is_sale), issued.filter(~is_sale)
    rows = pl.concat(
        [
            issued,
            new_invoices(_billing_state(tables, issued, billing), billing),
            sold,
            _sales(tables["auction_lots"], tables["channels"], sold, billing),
        ]
    )
    order = ["billing_month", "channel", "subscriber", "topic", "start_time", "correction_number", "invoice_id"]
    return rows.sort(order)


def _sales(lots: pl.DataFrame, channels: pl.DataFrame, sold: pl.DataFrame, billing: BillingConfig) -> pl.DataFrame:
    """Invoices for lots that were sold since."""
    starts = dict(channels.select("channel", "start_time").iter_rows())
    rows: list[dict[str, Any]] = []
    for sale in new_sales(lots.to_dicts(), sold.to_dicts(), billing):
        row = {each.name: sale.get(each.name) for each in COLUMNS}
        row["billing_month"] = months.month_name(int(sale["end_time"].timestamp() * 1_000_000), billing.time_zone)
        row["tape_start_time"] = starts.get(sale["channel"])
        rows.append({**row, "invoice_id": _invoice_id(row)})
    return from_rows(rows, COLUMNS)


def _issued(previous: pl.DataFrame | None, folder: str, billing: BillingConfig) -> pl.DataFrame:
    """Invoices and corrections of the previous run. Open and unbilled rows are computed again."""
    if folder:
        if "://" not in folder and not Path(folder).is_dir():
            raise IssuedInvoicesError(
                f"no invoices found in {folder}; for a first run, leave {ISSUED_INVOICES.name} empty"
            )
        previous = frame(pq.read_table(folder, partitioning=None))
    if previous is None:
        return from_rows([], COLUMNS)
    rows = conform(previous, COLUMNS).filter(pl.col("kind").is_in(ISSUED))
    for time_zone, currency in rows.select("time_zone", "currency").unique().iter_rows():
        if (time_zone, currency) != (billing.time_zone, billing.currency):
            raise IssuedInvoicesError(
                f"invoices were issued in {currency} and time zone {time_zone}, but the billing file has "
                f"{billing.currency or 'no currency'} and {billing.time_zone}; restore these values, or choose another "
                "--out to start over"
            )
    return rows


def _billing_state(tables: Mapping[str, pl.DataFrame], issued: pl.DataFrame, billing: BillingConfig) -> pl.DataFrame:
    """What the tapes say about each month, next to what was issued for it."""
    known, sessions, usage = in_us(tables["channels"]), tables["sessions"], tables["usage"]
    tapes_end_us = known["end_time"].max()
    is_on_ticket = (pl.col("evidence") == "roster") & pl.col("is_proven")
    billed = sessions.filter((pl.col("evidence") == "identifications") | is_on_ticket).filter(
        ~pl.col("subscriber").is_in(billing.exempt)
    )
    billed = periods.with_topic_of_channel(billed, billing)
    issued = issued.with_columns(first_day=pl.Series(map(periods.first_day, issued["terms"]), dtype=pl.Int64))
    parts = periods.parts_of_months(billed, issued, billing, tapes_end_us)
    current = months.connected_by_period(billed, parts, billing.time_zone)
    if isinstance(tapes_end_us, int):
        due = _flat_months(tapes_end_us, billing).select(current.columns)
        current = pl.concat([current, due]).group_by(_KEYS).agg(pl.col("connected_us", "session_count").sum())
    used = months.with_period(usage.rename({"billing_date": "day"}), parts)
    used = used.group_by(_KEYS).agg(pl.col("message_count", "payload_bytes").sum())
    current = current.join(used, on=_KEYS, how="left", nulls_equal=True)
    # Sums of decimals as integers, which are exact.
    before = in_us(issued).with_columns(
        amount=from_decimal(issued["amount"]), connected_us=from_decimal(issued["connected_ms"])
    )
    before = (
        before.sort("correction_number")
        .group_by(_KEYS)
        .agg(
            issued_count=pl.len().cast(pl.Int64),
            issued_id=pl.col("invoice_id").first(),
            issued_plan=pl.col("plan_name").first(),
            issued_terms=pl.col("terms").first(),
            issued_us=pl.col("connected_us").sum(),
            issued_sessions=pl.col("session_count").sum(),
            issued_messages=pl.col("message_count").sum(),
            issued_bytes=pl.col("payload_bytes").sum(),
            issued_amount=pl.col("amount").sum(),
            issued_tape_start_time=pl.col("tape_start_time").min(),
        )
    )
    proven = billed.select("channel", "subscriber", "is_proven").unique(["channel", "subscriber"])
    return (
        current.join(before, on=_KEYS, how="full", coalesce=True, nulls_equal=True)
        .join(proven, on=["channel", "subscriber"], how="left")
        .join(known.select("channel", tape_start_time="start_time"), on="channel", how="left")
        .with_columns(pl.col(*_MEASURES).fill_null(0), tapes_end_time=pl.lit(tapes_end_us, pl.Int64))
        .sort(_KEYS)
    )


def _flat_months(end_us: int, billing: BillingConfig) -> pl.DataFrame:
    """Months that are due without any connect time: those of flat plans listed with a channel and a first month, up to
    the end of the tapes."""
    latest = months.month_name(end_us, billing.time_zone)
    due: list[dict[str, Any]] = []
    for each in billing.subscribers:
        if (
            each.channel
            and (each.first_month or each.first_day)
            and each.plan in billing.plans
            and billing.plans[each.plan].kind == "flat"
        ):
            month = each.months[0]
            topic = None if each.topic is None or "*" in each.topic else each.topic
            while month <= min(each.months[1], latest):
                key = {"channel": each.channel, "subscriber": each.name, "topic": topic, "billing_month": month}
                first_day = int(each.days[0][8:]) if month == each.days[0][:7] else 1
                due.append({**key, "first_day": first_day, "connected_us": 0, "session_count": 0})
                month = months.add_months(month)
    counts = ("first_day", "connected_us", "session_count")
    schema = dict.fromkeys(_KEYS, pl.String()) | dict.fromkeys(counts, pl.Int64())
    return pl.DataFrame(due, schema=schema)


def _invoice_id(row: dict[str, Any]) -> str | None:
    """Hash everything billed as text, so that the ID does not depend on how a number is stored."""
    if row["kind"] not in ISSUED:
        return None
    content = {name: str(row[name]) for name in _HASHED if row[name] is not None}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:ID_DIGITS]


TABLE = Table(
    "invoices",
    "Who owes how much for which month?",
    COLUMNS,
    Stage.ALL,
    depends_on=("channels", "sessions", "usage", "auction_lots"),
    settings=(BILLING_FILE, ISSUED_INVOICES),
    is_cumulative=True,
)
