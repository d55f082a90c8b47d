"""Computes new invoices, corrections of issued ones, and rows that cannot be billed yet.

An issued invoice never changes. A correction is the difference between what the month costs now and everything issued
for it so far, under the terms stored in the first invoice. Nothing is dropped: a subscriber without a plan is listed as
`unbilled` with the reason, and a month that is not over as `open`.
"""

from decimal import Decimal

import numpy as np
import polars as pl

from broadloom.pipeline.arrow.frames import to_arrow, to_polars
from broadloom.pipeline.billing import months, terms
from broadloom.pipeline.billing.config import BillingConfig
from broadloom.pipeline.billing.money import MONEY, Ints, amount_due, from_decimal, to_decimal
from broadloom.record.arrow_import import pa, pc

_TIME = pa.timestamp("us", tz="UTC")

BILLING_STATE: pa.Schema = pa.schema(
    [
        ("channel", pa.string()),
        ("subscriber", pa.string()),
        ("billing_month", pa.string()),
        ("connected_us", pa.int64()),
        ("session_count", pa.int64()),
        ("tape_start_time", _TIME),
        ("tapes_end_time", _TIME),
        ("issued_count", pa.int64()),
        ("issued_id", pa.string()),
        ("issued_plan", pa.string()),
        ("issued_terms", pa.string()),
        ("issued_us", pa.int64()),
        ("issued_sessions", pa.int64()),
        ("issued_amount", MONEY),
        ("issued_tape_start_time", _TIME),
    ]
)
"""One month of a subscriber in a channel: what the tapes say now, and what was issued (null if nothing was).
`tape_start_time` is the start of the channel's tapes, `tapes_end_time` the end of all tapes."""

NEW_INVOICES: pa.Schema = pa.schema(
    [
        ("kind", pa.string()),
        ("correction_number", pa.int64()),
        ("billing_month", pa.string()),
        ("channel", pa.string()),
        ("subscriber", pa.string()),
        ("plan_name", pa.string()),
        ("connected_us", pa.int64()),
        ("session_count", pa.int64()),
        ("amount", MONEY),
        ("currency", pa.string()),
        ("time_zone", pa.string()),
        ("start_time", _TIME),
        ("end_time", _TIME),
        ("terms", pa.string()),
        ("corrected_invoice_id", pa.string()),
        ("reason", pa.string()),
        ("tape_start_time", _TIME),
    ]
)
"""Rows of the table `invoices` without the ID, which is computed from them."""


def new_invoices(billing_state: pa.Table, billing: BillingConfig) -> pa.Table:
    """The rows to add to the issued ones."""
    frame = to_polars(billing_state).with_columns(
        issued_amount=pl.Series(from_decimal(_filled(billing_state["issued_amount"]))), row=pl.int_range(pl.len())
    )
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
    position = NEW_INVOICES.get_field_index("amount")
    amounts = to_decimal(frame["amount_due"].to_numpy())
    return to_arrow(frame, NEW_INVOICES.remove(position)).add_column(position, "amount", amounts)


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


def _filled(amounts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(amounts, pa.scalar(Decimal(0), MONEY))
