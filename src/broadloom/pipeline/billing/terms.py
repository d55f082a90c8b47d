"""The terms of a bill: a plan and a rounding rule.

An invoice stores its terms as text, so that a later correction uses the same terms, whatever the billing file says by
then.
"""

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

PRICE_PLACES = 4
"""Decimal places of prices and of all money in the tables."""

PRICE_MAX = 100_000
"""Per month, hour, broadcast or subscriber, so that the product for a month fits into 64 bits."""

UNIT_S_MAX = 86_400

PLAN_KINDS = ("flat", "hour", "message", "byte")
"""Price per month; per hour connected; per message of the topic while connected; per million bytes of these."""

QUANTITIES = {"hour": 3600, "message": 1, "byte": 1_000_000}
"""What the price of a metered plan is for: in seconds, messages or bytes."""

TIERS_MAX = 20
QUANTITY_MAX = 10**15

ROUNDINGS = {
    "half-even": "to nearest, ties to even",
    "half-up": "to nearest, ties up",
    "down": "down",
    "up": "up",
}
"""Rounding rules for non-negative amounts. A correction is the difference of two rounded amounts."""


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    kind: str
    price: Decimal
    """Per month, hour, message or million bytes."""
    unit_s: int = 1
    """The connect time of a month is rounded up to this unit."""
    tiers: tuple["Tier", ...] = ()
    """Other prices from certain quantities on; the first from 0 up to the first tier is `price`."""


@dataclass(frozen=True, slots=True)
class Tier:
    """What lies above this quantity, in seconds, messages or bytes, has this price (graduated pricing). A free quota
    is a price of 0 and a tier."""

    above: int
    price: Decimal


@dataclass(frozen=True, slots=True)
class BillingTerms:
    """Everything that determines an amount, except the connect time."""

    kind: str
    price: Decimal
    unit_s: int
    digits: int
    rounding: str
    tiers: tuple[Tier, ...] = ()
    days: tuple[int, int, int] | None = None
    """First and last day of the part of the month that is billed, and days of the month; None for all of it."""

    def to_json(self) -> str:
        """Canonical: equal terms give equal text."""
        data: dict[str, Any] = {
            "digits": self.digits,
            "kind": self.kind,
            "price": f"{self.price:.{PRICE_PLACES}f}",
            "rounding": self.rounding,
            "unit_s": self.unit_s,
        }
        if self.tiers:
            data["tiers"] = [[each.above, f"{each.price:.{PRICE_PLACES}f}"] for each in self.tiers]
        if self.days is not None:
            data["days"] = list(self.days)
        return json.dumps(data, sort_keys=True, separators=(",", ":"))


def terms_of(plan: Plan, digits: int, rounding: str) -> BillingTerms:
    return BillingTerms(plan.kind, plan.price, plan.unit_s, digits, rounding, plan.tiers)


def parse_terms(text: str) -> BillingTerms:
    data = json.loads(text)
    tiers = tuple(Tier(above, Decimal(price)) for above, price in data.get("tiers", ()))
    days = data.get("days")
    return BillingTerms(
        data["kind"],
        Decimal(data["price"]),
        data["unit_s"],
        data["digits"],
        data["rounding"],
        tiers,
        (days[0], days[1], days[2]) if days is not None else None,
    )
