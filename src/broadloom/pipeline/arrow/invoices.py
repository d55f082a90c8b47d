"""What each subscriber owes for a month: new invoices, corrections of issued ones, and who could not be billed.

The rule: an issued invoice never changes. What came late is the difference between what the month costs now and all
that was issued for it so far, reckoned under the terms that the first invoice carries. Nobody is dropped: whoever has
no plan is told as unbilled, with the reason, and a month that is not over is told as open.
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
        ("month", pa.string()),
        ("connected_us", pa.int64()),
        ("sessions", pa.int64()),
        ("tape_from", _TIME),
        ("tapes_until", _TIME),
        ("issued", pa.int64()),
        ("issued_id", pa.string()),
        ("issued_plan", pa.string()),
        ("issued_terms", pa.string()),
        ("issued_us", pa.int64()),
        ("issued_sessions", pa.int64()),
        ("issued_amount", MONEY),
        ("issued_tape_from", _TIME),
    ]
)
"""A month of a subscriber in a channel: what the tapes say now, and what was issued (`issued` is how many rows; null if
none). `tape_from` is where the channel's tape begins, `tapes_until` where all tapes end."""

NEW_INVOICES: pa.Schema = pa.schema(
    [
        ("kind", pa.string()),
        ("number", pa.int64()),
        ("month", pa.string()),
        ("channel", pa.string()),
        ("subscriber", pa.string()),
        ("plan", pa.string()),
        ("connected_us", pa.int64()),
        ("sessions", pa.int64()),
        ("amount", MONEY),
        ("currency", pa.string()),
        ("zone", pa.string()),
        ("begins", _TIME),
        ("ends", _TIME),
        ("terms", pa.string()),
        ("corrects", pa.string()),
        ("reason", pa.string()),
        ("tape_from", _TIME),
    ]
)
"""Rows of the table invoices, all but the id, which is reckoned from them."""


def new_invoices(billing_state: pa.Table, billing: BillingConfig) -> pa.Table:
    """The rows to add to those that were issued."""
    frame = to_polars(billing_state).with_columns(
        issued_amount=pl.Series(from_decimal(_filled(billing_state["issued_amount"]))), row=pl.int_range(pl.len())
    )
    frame = _with_plan(_with_month_bounds(frame, billing.time_zone), billing)
    frame = frame.with_columns(pl.coalesce("issued_terms", "plan_terms").alias("terms"))
    frame = frame.with_columns(owed=pl.Series(_amount_due(frame), dtype=pl.Int64))
    is_new = pl.col("issued").is_null()
    is_over = pl.col("ends") + billing.issue_after_s * 1_000_000 <= pl.col("tapes_until")
    # Tapes that were removed since take nothing back: such a month cannot be reckoned any more.
    is_whole = (pl.col("tape_from") <= pl.col("issued_tape_from")) | (pl.col("tape_from") <= pl.col("begins"))
    is_other = (pl.col("owed") != pl.col("issued_amount")) & is_whole
    kind = (
        pl.when(~is_new & is_other)
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
        number=pl.col("issued").fill_null(0),
        plan=pl.coalesce("issued_plan", "plan"),
        corrects=pl.col("issued_id"),
        connected_us=pl.col("connected_us") - pl.col("issued_us").fill_null(0),
        sessions=pl.col("sessions") - pl.col("issued_sessions").fill_null(0),
        owed=pl.col("owed") - pl.col("issued_amount"),
        currency=pl.lit(billing.currency),
        zone=pl.lit(billing.time_zone),
        reason=pl.when(pl.col("kind") == "unbilled").then("reason"),
    ).sort("row")
    place = NEW_INVOICES.get_field_index("amount")
    return to_arrow(frame, NEW_INVOICES.remove(place)).add_column(place, "amount", to_decimal(frame["owed"].to_numpy()))


def _with_month_bounds(frame: pl.DataFrame, time_zone: str) -> pl.DataFrame:
    names = frame["month"].unique(maintain_order=True).to_list()
    edges = {
        "month": pl.Series(names, dtype=pl.String),
        "begins": pl.Series([months.month_start_us(each, time_zone) for each in names], dtype=pl.Int64),
        "ends": pl.Series(
            [months.month_start_us(months.add_months(each), time_zone) for each in names], dtype=pl.Int64
        ),
    }
    return frame.join(pl.DataFrame(edges), on="month", how="left")


def _with_plan(frame: pl.DataFrame, billing: BillingConfig) -> pl.DataFrame:
    """With `plan`, its `plan_terms`, and the `reason` where there is none: who is listed for the channel first, then
    who is listed for all channels, then the default."""
    listed = pl.DataFrame(
        [(each.name, each.channel, *each.months, each.plan) for each in billing.subscribers],
        schema={"subscriber": pl.String, "of": pl.String, "since": pl.String, "until": pl.String, "listed": pl.String},
        orient="row",
    )
    own = (
        frame.select("row", "subscriber", "channel", "month")
        .join(listed, on="subscriber")
        .filter(
            pl.col("month").is_between("since", "until")
            & (pl.col("of").is_null() | (pl.col("of") == pl.col("channel")))
        )
        .sort("row", "of", nulls_last=True)
        .unique("row", keep="first", maintain_order=True)
        .select("row", "listed")
    )
    texts = {
        name: terms.terms_of(plan, billing.digits, billing.rounding).to_json() for name, plan in billing.plans.items()
    }
    known = pl.DataFrame(
        {"plan": list(texts), "plan_terms": list(texts.values())}, schema={"plan": pl.String, "plan_terms": pl.String}
    )
    return (
        frame.join(own, on="row", how="left")
        .with_columns(plan=pl.coalesce("listed", pl.lit(billing.default_plan, pl.String)))
        .join(known, on="plan", how="left")
        .with_columns(
            reason=pl.when(pl.col("plan").is_null())
            .then(pl.lit("the subscriber is not listed for this month, and there is no default plan"))
            .when(pl.col("plan_terms").is_null())
            .then(pl.format("there is no plan {} in the billing file", "plan"))
        )
    )


def _amount_due(frame: pl.DataFrame) -> Ints:
    """What each row costs under its terms; nothing without terms."""
    amounts = np.zeros(len(frame), dtype=np.int64)
    connected: Ints = frame["connected_us"].to_numpy()
    texts = frame["terms"]
    for text in texts.drop_nulls().unique(maintain_order=True):
        here = (texts == text).fill_null(False).to_numpy()
        amounts[here] = amount_due(connected[here], terms.parse_terms(text))
    return amounts


def _filled(amounts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(amounts, pa.scalar(Decimal(0), MONEY))
