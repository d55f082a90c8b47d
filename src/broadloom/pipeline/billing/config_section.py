"""A table of the billing file: its values, checked as they are read. An error names the place in one sentence."""

import re
from decimal import Decimal
from typing import Any

from broadloom.errors import BroadloomError
from broadloom.pipeline.billing.terms import PRICE_MAX, QUANTITY_MAX

_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
_DAY = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")


class BillingConfigError(BroadloomError):
    """The billing file is invalid. The message says where and what is valid."""


class ConfigSection:
    """A table of the file. Keys that are never read are errors."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            raise BillingConfigError(f"{where} must be a table, not {data!r}")
        self._data: dict[str, Any] = dict(data)
        self._known_keys: list[str] = []
        self.where = where

    def _take(self, key: str) -> Any:
        self._known_keys.append(key)
        return self._data.pop(key, None)

    def reject_unknown_keys(self) -> None:
        for key in self._data:
            raise BillingConfigError(f"{self.where}: unknown key {key!r}; keys: {', '.join(self._known_keys)}")

    def text(self, key: str, default: str | None = None) -> str:
        value = self._take(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value:
            raise BillingConfigError(f"{self.where}: {key} must be text, {_actual(value)}")
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in choices:
            raise BillingConfigError(f"{self.where}: {key} must be one of {', '.join(choices)}, not {value!r}")
        return value

    def integer(self, key: str, default: int, *, minimum: int, maximum: int) -> int:
        value = self._take(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise BillingConfigError(
                f"{self.where}: {key} must be a whole number from {minimum} to {maximum}, not {value!r}"
            )
        return value

    def price(self, key: str, places: int, default: Decimal | None = None) -> Decimal:
        value = self._take(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
            raise BillingConfigError(f"{self.where}: {key} must be a price such as 9.90, {_actual(value)}")
        try:
            price = Decimal(value)
        except ArithmeticError:
            raise BillingConfigError(f"{self.where}: {key} must be a price such as 9.90, not {value!r}") from None
        if not price.is_finite() or not 0 <= price <= PRICE_MAX:
            raise BillingConfigError(f"{self.where}: {key} must be from 0 to {PRICE_MAX}, not {value}")
        if price != round(price, places):
            raise BillingConfigError(f"{self.where}: {key} has more than {places} decimal places: {value}")
        return price

    def month(self, key: str) -> str | None:
        value = self._take(key)
        if value is not None and not (isinstance(value, str) and _MONTH.fullmatch(value)):
            raise BillingConfigError(f'{self.where}: {key} must be a month such as "2027-01", {_actual(value)}')
        return value

    def table(self, key: str) -> dict[str, Any]:
        value = self._take(key)
        if value is not None and not isinstance(value, dict):
            raise BillingConfigError(f"{self.where}: {key} must be tables, [{key}.NAME] in TOML, {_actual(value)}")
        return value or {}

    def day(self, key: str) -> str | None:
        value = self._take(key)
        if value is not None and not (isinstance(value, str) and _DAY.fullmatch(value)):
            raise BillingConfigError(f'{self.where}: {key} must be a day such as "2027-01-17", {_actual(value)}')
        return value

    def quantity(self, key: str, scale: int, default: int | None = None) -> int:
        """A quantity in seconds, messages or bytes, given in hours, messages or megabytes."""
        value = self._take(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | Decimal) or not 0 <= value * scale <= QUANTITY_MAX:
            raise BillingConfigError(f"{self.where}: {key} must be a quantity of 0 or more, {_actual(value)}")
        if value * scale != int(value * scale):
            raise BillingConfigError(f"{self.where}: {key} is not a whole number of the smallest unit: {value}")
        return int(value * scale)

    def names(self, key: str) -> "list[str]":
        found = self.list(key)
        if not all(isinstance(each, str) and each for each in found):
            raise BillingConfigError(f"{self.where}: {key} must be a list of names")
        return found

    def list(self, key: str) -> "list[Any]":
        value = self._take(key)
        if value is not None and not isinstance(value, list):
            raise BillingConfigError(f"{self.where}: {key} must be a list, [[{key}]] in TOML, {_actual(value)}")
        return value or []


def _actual(value: object) -> str:
    return "but is missing" if value is None else f"not {value!r}"
