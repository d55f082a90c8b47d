"""Money as whole numbers of ten-thousandths, so that every sum and product is exact, and the way to Arrow's decimals.

The rule: an amount is rounded once, at the end, by a rule with a name (`broadloom.pipeline.billing.terms.ROUNDINGS`).
"""

from decimal import Decimal

import numpy as np
import numpy.typing as npt

from broadloom.pipeline.billing.terms import PRICE_PLACES, BillingTerms
from broadloom.record.arrow_import import pa

Ints = npt.NDArray[np.int64]

MONEY = pa.decimal128(18, PRICE_PLACES)
HOUR_S = 3600


def to_ten_thousandths(price: Decimal) -> int:
    """A price in ten-thousandths."""
    return int(price.scaleb(PRICE_PLACES))


def to_decimal(amounts: Ints) -> pa.Array:
    """Ten-thousandths as Arrow's decimals. Those are 128 bits each, of which a small number fills the lower half."""
    halves = np.empty((len(amounts), 2), dtype=np.int64)
    halves[:, 0] = amounts
    halves[:, 1] = amounts >> 63
    return pa.Array.from_buffers(MONEY, len(amounts), [None, pa.py_buffer(halves)])


def from_decimal(amounts: pa.Array | pa.ChunkedArray) -> Ints:
    """The way back; there must be no nulls."""
    if isinstance(amounts, pa.ChunkedArray):
        amounts = amounts.combine_chunks()
    if isinstance(amounts, pa.ChunkedArray):  # of an empty column
        return np.empty(0, dtype=np.int64)
    if amounts.null_count or amounts.type != MONEY:
        raise TypeError(f"money has to be {MONEY} without nulls, not {amounts.type}")
    halves = np.frombuffer(amounts.buffers()[1], dtype=np.int64).reshape(-1, 2)
    return halves[amounts.offset : amounts.offset + len(amounts), 0].copy()


def divide(numerator: Ints, denominator: int, rounding: str) -> Ints:
    """The quotient of amounts that are not negative, rounded by the named rule."""
    quotient, rest = np.divmod(numerator, denominator)
    match rounding:
        case "down":
            up = np.zeros(len(rest), dtype=bool)
        case "up":
            up = rest > 0
        case "half-up":
            up = 2 * rest >= denominator
        case "half-even":
            up = (2 * rest > denominator) | ((2 * rest == denominator) & (quotient % 2 == 1))
        case _:
            raise ValueError(f"there is no rounding rule {rounding!r}")
    return np.asarray(quotient + up, dtype=np.int64)


def round_amounts(amounts: Ints, digits: int, rounding: str) -> Ints:
    """Ten-thousandths, rounded to so many places after the point."""
    step = 10 ** (PRICE_PLACES - digits)
    return np.asarray(divide(amounts, step, rounding) * step, dtype=np.int64)


def amount_due(connected_us: Ints, terms: BillingTerms) -> Ints:
    """What so much connect time in a month costs, in ten-thousandths, rounded to the terms' digits."""
    price = to_ten_thousandths(terms.price)
    if terms.kind == "flat":
        return np.full(len(connected_us), price, dtype=np.int64)
    unit_us = terms.unit_s * 1_000_000
    billed_s = -(-connected_us // unit_us) * terms.unit_s
    step = 10 ** (PRICE_PLACES - terms.digits)
    return np.asarray(divide(billed_s * price, HOUR_S * step, terms.rounding) * step, dtype=np.int64)
