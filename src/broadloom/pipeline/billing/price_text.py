"""What a plan costs, in words for readers of a directory."""

from decimal import Decimal

from broadloom.pipeline.billing.terms import QUANTITIES, Plan

_UNITS = {"flat": "month", "hour": "hour", "message": "message", "byte": "MB"}
_PLURALS = {"hour": "hours", "message": "messages", "byte": "MB"}


def price_text(plan: Plan, currency: str) -> str:
    """As `2 hours free, then 0.45 EUR per hour, above 100 hours 0.30 EUR`."""
    parts = [] if plan.tiers and not plan.price else [f"{_money(plan.price, currency)} per {_UNITS[plan.kind]}"]
    for tier in plan.tiers:
        quantity = f"{Decimal(tier.above) / QUANTITIES[plan.kind]:,f} {_PLURALS[plan.kind]}"
        if parts:
            parts.append(f"above {quantity} {_money(tier.price, currency)}")
        else:
            parts += [f"{quantity} free", f"then {_money(tier.price, currency)} per {_UNITS[plan.kind]}"]
    return ", ".join(parts)


def _money(price: Decimal, currency: str) -> str:
    """With two decimal places, or more if the price has them."""
    places = max(2, -int(price.normalize().as_tuple().exponent))
    return f"{price:,.{places}f} {currency}"
