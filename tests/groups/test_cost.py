"""The cost of ordering does not depend on the number of messages held. `measure.py` tries a million."""

from tests.groups.measure import order_cost_us


def test_order_cost_does_not_grow_with_messages_held() -> None:
    few, many = (min(order_cost_us(held, 5_000, seed) for seed in range(3)) for held in (1_000, 100_000))
    assert many < 3 * few, f"{few:.2f} us with 1,000 held, {many:.2f} us with 100,000"
