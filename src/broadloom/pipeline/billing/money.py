"""Exact amounts: money as integer ten-thousandths, and the conversion to decimals.

An amount is rounded once, at the end, by a named rule (`broadloom.pipeline.billing.terms.ROUNDINGS`).
"""

from decimal import Decimal

import numpy as np
import numpy.typing as npt
import polars as pl

from broadloom.pipeline.billing.terms import PRICE_PLACES, QUANTITIES, BillingTerms
from broadloom.pipeline.table import MONEY
from broadloom.record.arrow_import import pa

Ints = npt.NDArray[np.int64]


def to_ten_thousandths(price: Decimal) -> int:
    return int(price.scaleb(PRICE_PLACES))


def to_decimal(unscaled: Ints, kind: pa.Decimal128Type = MONEY) -> pl.Series:
    """Decimals from unscaled integers. A decimal has 128 bits, of which an int64 fills the lower half."""
    halves = np.empty((len(unscaled), 2), dtype=np.int64)
    halves[:, 0] = unscaled
    halves[:, 1] = unscaled >> 63
    return pl.Series(pl.from_arrow(pa.Array.from_buffers(kind, len(unscaled), [None, pa.py_buffer(halves)])))


def from_decimal(amounts: pl.Series) -> pl.Series:
    """The reverse of `to_decimal`, for amounts without nulls."""
    if amounts.null_count() or not isinstance(amounts.dtype, pl.Decimal):
        raise TypeError(f"amounts must be decimals without nulls, not {amounts.dtype}")
    return amounts.to_physical().cast(pl.Int64)


def divide(numerator: Ints, denominator: int, rounding: str) -> Ints:
    """Quotient of non-negative amounts, rounded by the named rule."""
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
            raise ValueError(f"unknown rounding rule {rounding!r}")
    return np.asarray(quotient + up, dtype=np.int64)


def round_amounts(amounts: Ints, digits: int, rounding: str) -> Ints:
    """Round ten-thousandths to this number of decimal places."""
    step = 10 ** (PRICE_PLACES - digits)
    return np.asarray(divide(amounts, step, rounding) * step, dtype=np.int64)


def amount_due(
    connected_us: Ints, terms: BillingTerms, messages: Ints | None = None, payload_bytes: Ints | None = None
) -> Ints:
    """Price of the use in a month, in ten-thousandths, rounded once to the digits of the terms. A flat price is for the
    days of the month that the terms name."""
    price = to_ten_thousandths(terms.price)
    step = 10 ** (PRICE_PLACES - terms.digits)
    if terms.kind == "flat":
        whole = np.full(len(connected_us), price, dtype=np.int64)
        if terms.days is None:
            return whole
        first, last, of_month = terms.days
        return np.asarray(divide(whole * (last - first + 1), of_month * step, terms.rounding) * step, dtype=np.int64)
    if terms.kind == "hour":
        unit_us = terms.unit_s * 1_000_000
        quantity: Ints = -(-connected_us // unit_us) * terms.unit_s
    else:
        found = messages if terms.kind == "message" else payload_bytes
        quantity = np.zeros(len(connected_us), dtype=np.int64) if found is None else found
    # Python's integers: the product of a price and a number of bytes may exceed 64 bits.
    scale = QUANTITIES[terms.kind] * step
    return np.array([_rounded(_tiered(int(each), terms), scale, terms) * step for each in quantity], dtype=np.int64)


def _tiered(quantity: int, terms: BillingTerms) -> int:
    """Ten-thousandths times the quantity that a price is for."""
    bounds = [0, *(tier.above for tier in terms.tiers), None]
    prices = [terms.price, *(tier.price for tier in terms.tiers)]
    total = 0
    for price, low, high in zip(prices, bounds, bounds[1:], strict=False):
        inside = max(0, min(quantity, quantity if high is None else high) - (low or 0))
        total += to_ten_thousandths(price) * inside
    return total


def _rounded(numerator: int, denominator: int, terms: BillingTerms) -> int:
    quotient, rest = divmod(numerator, denominator)
    match terms.rounding:
        case "down":
            return quotient
        case "up":
            return quotient + (rest > 0)
        case "half-up":
            return quotient + (2 * rest >= denominator)
        case _:
            return quotient + (2 * rest > denominator or (2 * rest == denominator and quotient % 2 == 1))
