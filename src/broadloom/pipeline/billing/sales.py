"""Fees for lots that were sold in an auction. The seller owes them, once for each lot: a sale is final, so there is
nothing to correct, and an invoice for it is issued at once."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, ROUND_UP, Decimal
from typing import TYPE_CHECKING, Any

from broadloom.pipeline.billing.terms import PRICE_PLACES

if TYPE_CHECKING:
    from broadloom.pipeline.billing.config import BillingConfig

SALE = "sale"
PLAN = "sales"
"""As the section of the billing file."""
_MODES = {"half-even": ROUND_HALF_EVEN, "half-up": ROUND_HALF_UP, "down": ROUND_DOWN, "up": ROUND_UP}


@dataclass(frozen=True, slots=True)
class SaleFees:
    percent: Decimal
    """Of the price."""
    lot_fee: Decimal
    """For each lot."""


def sale_fee(price: Decimal, billing: "BillingConfig") -> Decimal | None:
    """What the seller owes, rounded once; None without fees in the billing file."""
    if billing.sales is None:
        return None
    exact = price * billing.sales.percent / 100 + billing.sales.lot_fee
    return exact.quantize(Decimal(1).scaleb(-billing.digits), _MODES[billing.rounding])


def sale_terms(lot: str, price: Decimal, billing: "BillingConfig") -> str:
    """Everything that determines the amount, and the lot. Canonical, as the terms of a plan."""
    assert billing.sales is not None
    data = {
        "digits": billing.digits,
        "kind": SALE,
        "lot": lot,
        "lot_fee": f"{billing.sales.lot_fee:.{PRICE_PLACES}f}",
        "percent": f"{billing.sales.percent:.{PRICE_PLACES}f}",
        "price": f"{price:.{PRICE_PLACES}f}",
        "rounding": billing.rounding,
    }
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def new_sales(
    lots: list[dict[str, Any]], issued: list[dict[str, Any]], billing: "BillingConfig"
) -> Iterator[dict[str, Any]]:
    """What to invoice for rows of `auction_lots`, beside the invoices for sales that were issued before. A price on
    which the tapes disagree is not invoiced."""
    known = {(row["channel"], json.loads(row["terms"])["lot"]) for row in issued}
    for lot in lots:
        is_new = (lot["channel"], lot["lot"]) not in known and lot["seller"] not in billing.exempt
        if lot["status"] == "sold" and lot["price_count"] == 1 and lot["fee"] is not None and is_new:
            yield {
                "kind": SALE,
                "correction_number": 0,
                "channel": lot["channel"],
                "subscriber": lot["seller"],
                "plan_name": PLAN,
                "connected_ms": Decimal(0),
                "session_count": 0,
                "amount": lot["fee"],
                "currency": billing.currency,
                "time_zone": billing.time_zone,
                "start_time": lot["end_time"],
                "end_time": lot["end_time"],
                "terms": sale_terms(lot["lot"], lot["price"], billing),
                "is_proven": True,
            }
