"""Exact amounts: money as integer ten-thousandths, and the conversion to decimals.

An amount is rounded once, at the end, by a named rule (`broadloom.pipeline.billing.terms.ROUNDINGS`).
"""

from decimal import Decimal

import numpy as np
import numpy.typing as npt
import polars as pl

from broadloom.pipeline.billing.terms import PRICE_PLACES, BillingTerms
from broadloom.pipeline.table import MONEY
from broadloom.record.arrow_import import pa

Ints = npt.NDArray[np.int64]

HOUR_S = 3600


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


def amount_due(connected_us: Ints, terms: BillingTerms) -> Ints:
    """Price of the connect time of a month, in ten-thousandths, rounded to the digits of the terms."""
    price = to_ten_thousandths(terms.price)
    if terms.kind == "flat":
        return np.full(len(connected_us), price, dtype=np.int64)
    unit_us = terms.unit_s * 1_000_000
    billed_s = -(-connected_us // unit_us) * terms.unit_s
    step = 10 ** (PRICE_PLACES - terms.digits)
    return np.asarray(divide(billed_s * price, HOUR_S * step, terms.rounding) * step, dtype=np.int64)
