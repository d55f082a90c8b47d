"""`Lot`: what is sold, and by which rules. Amounts are exact decimals."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal
from enum import StrEnum
from typing import Any

PLACES = 4
"""Decimal places of an amount, as in bills."""
AMOUNT_MAX = Decimal(10) ** 12
EXACT = Context(prec=28)
"""For calculations with amounts: the precision of `Decimal` operators is a setting of each program."""
ID_BYTES_MAX = 64
TITLE_BYTES_MAX = 200
NAME_BYTES_MAX = 64
"""As on a ticket."""
BIDDERS_MAX = 500
SECONDS_MIN = 0.1
"""Each call is an entry of the order."""
CALLS_DOWN_MAX = 1000
SECONDS_MAX = 30 * 86_400.0

_AMOUNT = re.compile(rf"\d{{1,13}}(\.\d{{1,{PLACES}}})?", re.ASCII)
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\uffff]"
)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Kind(StrEnum):
    ENGLISH = "english"
    """Open bids that rise. The highest one wins and is paid."""
    DUTCH = "dutch"
    """The price falls until somebody bids, who pays it."""
    SEALED = "sealed"
    """Sealed bids. The highest one wins and is paid (first price)."""
    VICKREY = "vickrey"
    """Sealed bids. The highest one wins, and the second highest is paid."""

    @property
    def is_sealed(self) -> bool:
        return self in (Kind.SEALED, Kind.VICKREY)


def parse_amount(value: object) -> Decimal:
    """An exact amount of money. Raises `ValueError`: a float is not exact."""
    text = format(value, "f") if isinstance(value, Decimal) and value.is_finite() else str(value)
    if isinstance(value, bool | float) or not _AMOUNT.fullmatch(text) or Decimal(text) > AMOUNT_MAX:
        raise ValueError(f"{value!r} is not an amount: write it as in '25' or '25.50', with at most {PLACES} places")
    return Decimal(text)


def amount_text(amount: Decimal) -> str:
    """At least two places if there are any: 25, 25.50, 0.0001."""
    whole, _, places = format(amount, "f").partition(".")
    places = places.rstrip("0")
    return f"{whole}.{places.ljust(2, '0')}" if places else whole


def check_id(lot: object) -> None:
    """Raises `ValueError` if this cannot be the id of a lot."""
    if not isinstance(lot, str) or len(lot) > ID_BYTES_MAX or not _ID.fullmatch(lot):
        raise ValueError(f"lot {lot!r}: an id has at most {ID_BYTES_MAX} letters, digits, `.`, `_` and `-`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lot:
    """Values that cannot work raise `ValueError`."""

    id: str
    kind: Kind
    start: Decimal
    """English: the lowest first bid. Dutch: the price at the beginning. Sealed kinds: the lowest bid."""
    end: datetime
    """From here on the auctioneer calls: going once, twice, gone; or lower prices; or for the reveal. By the clock of
    the auctioneer, and only a wish: what counts is the order of its calls and the bids."""
    step: Decimal = Decimal(1)
    """English: by how much a bid must exceed the one before. Dutch: by how much the price falls at each call."""
    reserve: Decimal = Decimal(0)
    """Below this the lot is not sold. Everyone can see it."""
    call_s: float = 5.0
    """Time between two calls."""
    extension_s: float = 30.0
    """English: after a late bid the auctioneer waits this long before it calls. Sealed kinds: time for the reveal."""
    title: str = ""
    seller: str = ""
    """The name on the ticket that opened the lot."""
    bidders: tuple[str, ...] = ()
    """Names on tickets that may bid; empty: all."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "kind", Kind(self.kind))
        for name in ("start", "step", "reserve"):
            put(self, name, parse_amount(getattr(self, name)))
        bidders: Any = self.bidders
        put(self, "bidders", (bidders,) if isinstance(bidders, str) else tuple(bidders))
        end: Any = self.end
        end = datetime.fromisoformat(end) if isinstance(end, str) else end
        if not isinstance(end, datetime) or end.tzinfo is None:
            raise ValueError("end must be a time with a time zone")
        put(self, "end", end.astimezone(UTC))
        check_id(self.id)
        for name, bytes_max in (("title", TITLE_BYTES_MAX), ("seller", NAME_BYTES_MAX)):
            if not _is_text(getattr(self, name), bytes_max):
                raise ValueError(f"{name} must be at most {bytes_max} bytes of printable text")
        if len(self.bidders) > BIDDERS_MAX or not all(_is_text(each, NAME_BYTES_MAX) for each in self.bidders):
            raise ValueError(f"bidders must be at most {BIDDERS_MAX} names")
        for name in ("call_s", "extension_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not SECONDS_MIN <= value <= SECONDS_MAX:
                raise ValueError(f"{name} must be a number of seconds, from {SECONDS_MIN:g} to {SECONDS_MAX:,}")
        if not self.step:
            raise ValueError("step must be more than 0")
        if self.kind is Kind.DUTCH and self.reserve > self.start:
            raise ValueError("the price of a Dutch auction falls: start must not be below reserve")
        if self.kind is Kind.DUTCH and self.calls_down > CALLS_DOWN_MAX:
            raise ValueError(f"the price would fall {self.calls_down:,} times, at most {CALLS_DOWN_MAX} are possible")

    @property
    def end_s(self) -> float:
        return self.end.timestamp()

    @property
    def calls_down(self) -> int:
        """Dutch: how often the price falls before it is at the reserve."""
        return math.ceil(EXACT.divide(EXACT.subtract(self.start, self.reserve), self.step))

    def as_dict(self) -> dict[str, Any]:
        """JSON-serializable values, from which `Lot.parse` makes an equal one."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "start": amount_text(self.start),
            "step": amount_text(self.step),
            "reserve": amount_text(self.reserve),
            "end": self.end.isoformat(),
            "call_s": self.call_s,
            "extension_s": self.extension_s,
            "title": self.title,
            "bidders": list(self.bidders),
        }

    @classmethod
    def parse(cls, values: Mapping[str, Any], seller: str) -> "Lot":
        """Raises `ValueError`, also for another notation of a time: versions of Python differ in what they parse."""
        try:
            lot = cls(**{**values, "seller": seller})
        except (TypeError, OverflowError) as problem:
            raise ValueError(f"not a lot: {problem}") from None
        if values.get("end") != lot.end.isoformat():
            raise ValueError(f"end must be in UTC: {lot.end.isoformat()}")
        return lot


def _is_text(text: object, bytes_max: int) -> bool:
    """Not by `str.isprintable`, which depends on the version of Python: all members must come to the same result."""
    return isinstance(text, str) and not _UNPRINTABLE.search(text) and len(text.encode()) <= bytes_max
