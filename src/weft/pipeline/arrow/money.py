"""Money as whole numbers of ten-thousandths, so that every sum and product is exact, and the way to Arrow's decimals.

The rule: an amount is rounded once, at the end, by a rule with a name (`weft.pipeline.terms.ROUNDINGS`).
"""

from decimal import Decimal

import numpy as np
import numpy.typing as npt

from weft.pipeline.terms import PRICE_PLACES, Terms
from weft.record.arrow import pa

Whole = npt.NDArray[np.int64]

MONEY = pa.decimal128(18, PRICE_PLACES)
HOUR_S = 3600


def parts(price: Decimal) -> int:
    """A price in ten-thousandths."""
    return int(price.scaleb(PRICE_PLACES))


def to_decimal(amounts: Whole) -> pa.Array:
    """Ten-thousandths as Arrow's decimals. Those are 128 bits each, of which a small number fills the lower half."""
    halves = np.empty((len(amounts), 2), dtype=np.int64)
    halves[:, 0] = amounts
    halves[:, 1] = amounts >> 63
    return pa.Array.from_buffers(MONEY, len(amounts), [None, pa.py_buffer(halves)])


def from_decimal(amounts: pa.Array | pa.ChunkedArray) -> Whole:
    """The way back; there must be no nulls."""
    if isinstance(amounts, pa.ChunkedArray):
        amounts = amounts.combine_chunks()
    if isinstance(amounts, pa.ChunkedArray):  # of an empty column
        return np.empty(0, dtype=np.int64)
    if amounts.null_count or amounts.type != MONEY:
        raise TypeError(f"money has to be {MONEY} without nulls, not {amounts.type}")
    halves = np.frombuffer(amounts.buffers()[1], dtype=np.int64).reshape(-1, 2)
    return halves[amounts.offset : amounts.offset + len(amounts), 0].copy()


def divided(numerator: Whole, denominator: int, rounding: str) -> Whole:
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


def rounded(amounts: Whole, digits: int, rounding: str) -> Whole:
    """Ten-thousandths, rounded to so many places after the point."""
    step = 10 ** (PRICE_PLACES - digits)
    return np.asarray(divided(amounts, step, rounding) * step, dtype=np.int64)


def owed(connected_us: Whole, terms: Terms) -> Whole:
    """What so much connect time in a month costs, in ten-thousandths, rounded to the terms' digits."""
    price = parts(terms.price)
    if terms.kind == "flat":
        return np.full(len(connected_us), price, dtype=np.int64)
    unit_us = terms.unit_s * 1_000_000
    billed_s = -(-connected_us // unit_us) * terms.unit_s
    step = 10 ** (PRICE_PLACES - terms.digits)
    return np.asarray(divided(billed_s * price, HOUR_S * step, terms.rounding) * step, dtype=np.int64)
