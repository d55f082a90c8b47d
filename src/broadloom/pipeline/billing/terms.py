"""The terms of a bill: a plan and a rounding rule.

An invoice stores its terms as text, so that a later correction uses the same terms, whatever the billing file says by
then.
"""

import json
from dataclasses import dataclass
from decimal import Decimal

PRICE_PLACES = 4
"""Decimal places of prices and of all money in the tables."""

PRICE_MAX = 100_000
"""Per month, hour, broadcast or subscriber, so that the product for a month fits into 64 bits."""

UNIT_S_MAX = 86_400

PLAN_KINDS = ("flat", "hour")
"""Price per month; price per hour connected."""

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
    """Per month or per hour."""
    unit_s: int = 1
    """The connect time of a month is rounded up to this unit."""


@dataclass(frozen=True, slots=True)
class BillingTerms:
    """Everything that determines an amount, except the connect time."""

    kind: str
    price: Decimal
    unit_s: int
    digits: int
    rounding: str

    def to_json(self) -> str:
        """Canonical: equal terms give equal text."""
        data = {
            "digits": self.digits,
            "kind": self.kind,
            "price": f"{self.price:.{PRICE_PLACES}f}",
            "rounding": self.rounding,
            "unit_s": self.unit_s,
        }
        return json.dumps(data, sort_keys=True, separators=(",", ":"))


def terms_of(plan: Plan, digits: int, rounding: str) -> BillingTerms:
    return BillingTerms(plan.kind, plan.price, plan.unit_s, digits, rounding)


def parse_terms(text: str) -> BillingTerms:
    data = json.loads(text)
    return BillingTerms(data["kind"], Decimal(data["price"]), data["unit_s"], data["digits"], data["rounding"])
