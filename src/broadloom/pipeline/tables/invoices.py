"""Computes new invoices, corrections of issued ones, and rows that cannot be billed yet.

An issued invoice never changes. A correction is the difference between what the month costs now and everything issued
for it so far, under the terms stored in the first invoice. Nothing is dropped: a subscriber without a plan is listed as
`unbilled` with the reason, and a month that is not over as `open`.

Billed are subscribers that identified themselves, and holders of a ticket that a recorder had in its roster.
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
from broadloom.pipeline.billing import months, terms
from broadloom.pipeline.billing.config import BillingConfig
from broadloom.pipeline.billing.money import Ints, amount_due, from_decimal, to_decimal
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
_KEYS = ["channel", "subscriber", "billing_month"]
_HASHED = (
    *("kind", "correction_number", "billing_month", "channel", "subscriber", "plan_name", "connected_ms"),
    *("session_count", "amount", "currency", "time_zone", "terms", "corrected_invoice_id"),
)

COLUMNS = (
    column("invoice_id", "Hash of everything billed, 32 hex digits; null if not issued."),
    column("kind", "`invoice`; `correction`; `open` (the month is not over); `unbilled` (see `reason`)."),
    column("correction_number", "0 for the invoice, then 1, 2 ... for its corrections."),
    column("billing_month", "Month in the billing time zone, as YYYY-MM."),
    CHANNEL,
    column("subscriber", "Subscriber, as in the table `sessions`."),
    column("plan_name", "Name of the plan in the billing file."),
    column("connected_ms", "Connect time in the month; for a correction, the difference.", EXACT_MS),
    column("session_count", "Sessions in the month; for a correction, the difference."),
    column("amount", "Amount due, rounded once; for a correction, the difference. All rows add up.", MONEY),
    column("currency", "Currency of the amount."),
    column("time_zone", "Time zone of the month."),
    column("start_time", "Start of the month."),
    column("end_time", "Start of the next month."),
    column("terms", "Kind of plan, price, unit, digits and rounding rule, as JSON."),
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
    """
    frame = in_us(billing_state).with_columns(pl.col("issued_amount").fill_null(0), row=pl.int_range(pl.len()))
    frame = _with_plan(_with_month_bounds(frame, billing.time_zone), billing)
    frame = frame.with_columns(pl.coalesce("issued_terms", "plan_terms").alias("terms"))
    frame = frame.with_columns(amount_due=pl.Series(_amount_due(frame), dtype=pl.Int64))
    is_new = pl.col("issued_count").is_null()
    is_over = pl.col("end_time") + billing.issue_after_s * 1_000_000 <= pl.col("tapes_end_time")
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
    frame = frame.with_columns(
        correction_number=pl.col("issued_count").fill_null(0),
        plan_name=pl.coalesce("issued_plan", "plan_name"),
        corrected_invoice_id=pl.col("issued_id"),
        connected_us=pl.col("connected_us") - pl.col("issued_us").fill_null(0),
        session_count=pl.col("session_count") - pl.col("issued_sessions").fill_null(0),
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


def _with_month_bounds(frame: pl.DataFrame, time_zone: str) -> pl.DataFrame:
    names = frame["billing_month"].unique(maintain_order=True).to_list()
    starts = [months.month_start_us(each, time_zone) for each in names]
    ends = [months.month_start_us(months.add_months(each), time_zone) for each in names]
    bounds = {
        "billing_month": pl.Series(names, dtype=pl.String),
        "start_time": pl.Series(starts, dtype=pl.Int64),
        "end_time": pl.Series(ends, dtype=pl.Int64),
    }
    return frame.join(pl.DataFrame(bounds), on="billing_month", how="left")


def _with_plan(frame: pl.DataFrame, billing: BillingConfig) -> pl.DataFrame:
    """Add `plan_name`, `plan_terms`, and `reason` where there is no plan. A listing for the channel comes before a
    listing for all channels, and that before the default plan."""
    listed = pl.DataFrame(
        [(each.name, each.channel, *each.months, each.plan) for each in billing.subscribers],
        schema={
            "subscriber": pl.String,
            "listed_channel": pl.String,
            "first_month": pl.String,
            "last_month": pl.String,
            "listed_plan": pl.String,
        },
        orient="row",
    )
    own = (
        frame.select("row", "subscriber", "channel", "billing_month")
        .join(listed, on="subscriber")
        .filter(
            pl.col("billing_month").is_between("first_month", "last_month")
            & (pl.col("listed_channel").is_null() | (pl.col("listed_channel") == pl.col("channel")))
        )
        .sort("row", "listed_channel", nulls_last=True)
        .unique("row", keep="first", maintain_order=True)
        .select("row", "listed_plan")
    )
    texts = {
        name: terms.terms_of(plan, billing.digits, billing.rounding).to_json() for name, plan in billing.plans.items()
    }
    known = pl.DataFrame(
        {"plan_name": list(texts), "plan_terms": list(texts.values())},
        schema={"plan_name": pl.String, "plan_terms": pl.String},
    )
    return (
        frame.join(own, on="row", how="left")
        .with_columns(plan_name=pl.coalesce("listed_plan", pl.lit(billing.default_plan, pl.String)))
        .join(known, on="plan_name", how="left")
        .with_columns(
            reason=pl.when(pl.col("plan_name").is_null())
            .then(pl.lit("the subscriber is not listed for this month, and there is no default plan"))
            .when(pl.col("plan_terms").is_null())
            .then(pl.format("there is no plan {} in the billing file", "plan_name"))
        )
    )


def _amount_due(frame: pl.DataFrame) -> Ints:
    """What each row costs under its terms; 0 without terms."""
    amounts = np.zeros(len(frame), dtype=np.int64)
    connected: Ints = frame["connected_us"].to_numpy()
    texts = frame["terms"]
    for text in texts.drop_nulls().unique(maintain_order=True):
        same = (texts == text).fill_null(False).to_numpy()
        amounts[same] = amount_due(connected[same], terms.parse_terms(text))
    return amounts


def build_invoices(
    channels: pl.DataFrame,
    sessions: pl.DataFrame,
    previous: pl.DataFrame | None,
    settings: Mapping[str, Any],
    billing: BillingConfig,
) -> pl.DataFrame:
    """All invoices, those issued before and the new ones, in one order: the same invoices are the same bytes.

    `channels` and `sessions` are the tables of that name, `previous` is this table as built before.
    """
    issued = _issued(previous, str(settings[ISSUED_INVOICES.name]), billing)
    rows = pl.concat([issued, new_invoices(_billing_state(channels, sessions, issued, billing), billing)])
    return rows.sort("billing_month", "channel", "subscriber", "correction_number")


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
    rows = conform(previous, COLUMNS).filter(pl.col("kind").is_in(["invoice", "correction"]))
    for time_zone, currency in rows.select("time_zone", "currency").unique().iter_rows():
        if (time_zone, currency) != (billing.time_zone, billing.currency):
            raise IssuedInvoicesError(
                f"invoices were issued in {currency} and time zone {time_zone}, but the billing file has "
                f"{billing.currency or 'no currency'} and {billing.time_zone}; restore these values, or choose another "
                "--out to start over"
            )
    return rows


def _billing_state(
    channels: pl.DataFrame, sessions: pl.DataFrame, issued: pl.DataFrame, billing: BillingConfig
) -> pl.DataFrame:
    """What the tapes say about each month, next to what was issued for it."""
    known = in_us(channels)
    tapes_end_us = known["end_time"].max()
    is_on_ticket = (pl.col("evidence") == "roster") & pl.col("is_proven")
    billed = sessions.filter((pl.col("evidence") == "identifications") | is_on_ticket)
    current = months.connected_by_month(billed, billing.time_zone)
    if isinstance(tapes_end_us, int):
        due = _flat_months(tapes_end_us, billing).select(current.columns)
        current = pl.concat([current, due]).group_by(_KEYS).agg(pl.col("connected_us", "session_count").sum())
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
            issued_amount=pl.col("amount").sum(),
            issued_tape_start_time=pl.col("tape_start_time").min(),
        )
    )
    proven = billed.select("channel", "subscriber", "is_proven").unique(["channel", "subscriber"])
    return (
        current.join(before, on=_KEYS, how="full", coalesce=True)
        .join(proven, on=["channel", "subscriber"], how="left")
        .join(known.select("channel", tape_start_time="start_time"), on="channel", how="left")
        .with_columns(
            pl.col("connected_us", "session_count").fill_null(0), tapes_end_time=pl.lit(tapes_end_us, pl.Int64)
        )
        .sort(_KEYS)
    )


def _flat_months(end_us: int, billing: BillingConfig) -> pl.DataFrame:
    """Months that are due without any connect time: those of flat plans listed with a channel and a first month, up to
    the end of the tapes."""
    latest = months.month_name(end_us, billing.time_zone)
    due: list[dict[str, Any]] = []
    for each in billing.subscribers:
        if each.channel and each.first_month and each.plan in billing.plans and billing.plans[each.plan].kind == "flat":
            month = each.months[0]
            while month <= min(each.months[1], latest):
                key = {"channel": each.channel, "subscriber": each.name, "billing_month": month}
                due.append({**key, "connected_us": 0, "session_count": 0})
                month = months.add_months(month)
    schema = dict.fromkeys(_KEYS, pl.String()) | dict.fromkeys(("connected_us", "session_count"), pl.Int64())
    return pl.DataFrame(due, schema=schema)


def _invoice_id(row: dict[str, Any]) -> str | None:
    """Hash everything billed as text, so that the ID does not depend on how a number is stored."""
    if row["kind"] not in ("invoice", "correction"):
        return None
    content = {name: str(row[name]) for name in _HASHED if row[name] is not None}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:ID_DIGITS]


TABLE = Table(
    "invoices",
    "Who owes how much for which month?",
    COLUMNS,
    Stage.ALL,
    depends_on=("channels", "sessions"),
    settings=(BILLING_FILE, ISSUED_INVOICES),
    is_cumulative=True,
)
