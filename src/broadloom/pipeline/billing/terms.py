"""The terms under which a month is billed: a plan, and how an amount is rounded. Pure values, no file and no Spark.

The rule: an invoice carries its terms as text, so that a later correction is reckoned as the invoice was, whatever
the billing file says by then.
"""

import json
from dataclasses import dataclass
from decimal import Decimal

PRICE_PLACES = 4
"""Places after the point of a price, and of all money in the tables."""

PRICE_MAX = 100_000
"""Of a month, hour, broadcast or subscriber: so that a month's product fits into 64 bits."""

UNIT_S_MAX = 86_400

PLAN_KINDS = ("flat", "hour")
"""So much a month; so much an hour connected."""

ROUNDINGS = {
    "half-even": "to the nearest, and from the middle to the even neighbour",
    "half-up": "to the nearest, and from the middle upwards",
    "down": "downwards",
    "up": "upwards",
}
"""By name; they are for amounts that are not negative. A correction is the difference of two rounded amounts."""


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    kind: str
    price: Decimal
    """A month, or an hour."""
    unit_s: int = 1
    """Connect time of a month counts in started units of so many seconds."""


@dataclass(frozen=True, slots=True)
class BillingTerms:
    """All that decides an amount, beside the connect time."""

    kind: str
    price: Decimal
    unit_s: int
    digits: int
    rounding: str

    def to_json(self) -> str:
        """The same terms are the same text, always."""
        told = {
            "digits": self.digits,
            "kind": self.kind,
            "price": f"{self.price:.{PRICE_PLACES}f}",
            "rounding": self.rounding,
            "unit_s": self.unit_s,
        }
        return json.dumps(told, sort_keys=True, separators=(",", ":"))


def terms_of(plan: Plan, digits: int, rounding: str) -> BillingTerms:
    return BillingTerms(plan.kind, plan.price, plan.unit_s, digits, rounding)


def parse_terms(text: str) -> BillingTerms:
    told = json.loads(text)
    return BillingTerms(told["kind"], Decimal(told["price"]), told["unit_s"], told["digits"], told["rounding"])
