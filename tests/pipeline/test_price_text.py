"""What plans cost, as readers see it."""

import pytest

from broadloom.pipeline.billing.config import parse
from broadloom.pipeline.billing.price_text import price_text


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        ({"kind": "flat", "month": "9.9"}, "9.90 EUR per month"),
        ({"kind": "message", "message": "0.002"}, "0.002 EUR per message"),
        ({"kind": "byte", "megabyte": 1}, "1.00 EUR per MB"),
        ({"kind": "flat", "month": 0}, "0.00 EUR per month"),
        (
            {"kind": "hour", "hour": "0.45", "free": 2, "tiers": [{"above": 1000, "price": "0.3"}]},
            "2 hours free, then 0.45 EUR per hour, above 1,000 hours 0.30 EUR",
        ),
        (
            {"kind": "hour", "hour": "0.45", "tiers": [{"above": 100, "price": "0.3"}]},
            "0.45 EUR per hour, above 100 hours 0.30 EUR",
        ),
    ],
)
def test_price_of_a_plan_is_a_readable_text(plan: dict, text: str) -> None:
    config = parse({"currency": "EUR", "plans": {"visitor": plan}})
    assert price_text(config.plans["visitor"], config.currency) == text
