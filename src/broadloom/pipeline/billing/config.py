"""What connect time and adverts cost: the billing file, in TOML or JSON, read and checked.

The rule: money is exact. Prices are decimal numbers of at most four places, never floating point; a bill is rounded
once, by the rule that the file names, and months are those of the zone that it names. Everything that is wrong in the
file is told in one sentence with its place, before anything is billed.

    zone = "Europe/Berlin"       # months begin at midnight here; "UTC" if not said
    currency = "EUR"             # required as soon as there is a price
    digits = 2                   # places after the point on a bill
    rounding = "half-even"       # half-even, half-up, down or up
    issue_after_s = 172800       # a month is billed when the tapes reach so far beyond its end
    default_plan = "visitor"     # of those whom nobody listed; without it they are told as unbilled

    [plans.reader]
    kind = "flat"                # so much a month
    month = 9.90

    [plans.visitor]
    kind = "hour"                # so much an hour connected
    hour = 0.45
    unit_s = 60                  # connect time of a month counts in started units of so many seconds; 1 if not said

    [[subscribers]]
    name = "alice"
    plan = "reader"
    channel = "6f430d6784a166fc" # in this channel only; in every one if not said
    since = "2027-01"            # first and last month; always, if not said
    until = "2027-12"

    [[advertisers]]
    name = "acme"
    adverts = ["spring-*"]       # names of adverts, with * and ?
    broadcast = 1.00             # for each broadcast
    subscriber = 0.0125          # and for each subscriber connected at that moment
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from broadloom.errors import BroadloomError
from broadloom.pipeline.billing.terms import PLAN_KINDS, PRICE_MAX, PRICE_PLACES, ROUNDINGS, UNIT_S_MAX, Plan

ISSUE_AFTER_S = 2 * 86_400
"""Two days for tapes to come in before a month is billed. What comes later is corrected."""

_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
_CHANNEL = re.compile(r"[0-9a-f]{16}")
_ALWAYS = ("0000-00", "9999-99")


class BillingConfigError(BroadloomError):
    """The billing file cannot be used; the text says where and what to write instead."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    name: str
    plan: str
    """May be one that there is not: then its months are told as unbilled."""
    channel: str | None = None
    first_month: str | None = None
    """First month, as YYYY-MM."""
    last_month: str | None = None
    """Last month."""

    @property
    def months(self) -> tuple[str, str]:
        return self.first_month or _ALWAYS[0], self.last_month or _ALWAYS[1]


@dataclass(frozen=True, slots=True)
class Advertiser:
    name: str
    ads: tuple[str, ...]
    broadcast_fee: Decimal = Decimal(0)
    subscriber_fee: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class BillingConfig:
    """Without a file: no plan, nobody billed, months in UTC."""

    time_zone: str = "UTC"
    currency: str = ""
    digits: int = 2
    rounding: str = "half-even"
    issue_after_s: int = ISSUE_AFTER_S
    default_plan: str | None = None
    plans: Mapping[str, Plan] = field(default_factory=dict)
    subscribers: tuple[Subscriber, ...] = ()
    advertisers: tuple[Advertiser, ...] = ()

    def advertiser(self, ad: str) -> Advertiser | None:
        """Whose advert it is: who names it exactly, else the first in the file with a pattern that fits."""
        exact = [each for each in self.advertisers if ad in each.ads]
        fitting = [each for each in self.advertisers if any(fnmatchcase(ad, name) for name in each.ads)]
        return next(iter(exact + fitting), None)


def load(path: str | Path) -> BillingConfig:
    """The billing of a file, by its ending `.toml` or `.json`. An empty path is no file: nobody is billed."""
    if not str(path):
        return BillingConfig()
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".toml":
            data = tomllib.loads(text, parse_float=Decimal)
        elif path.suffix == ".json":
            data = json.loads(text, parse_float=Decimal)
        else:
            raise BillingConfigError(f"{path}: a billing file is named .toml or .json")
    except OSError as problem:
        raise BillingConfigError(f"{path}: cannot be read: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise BillingConfigError(f"{path}: is not {path.suffix[1:].upper()}: {problem}") from None
    try:
        return parse(data)
    except BillingConfigError as problem:
        raise BillingConfigError(f"{path}: {problem}") from None


def parse(data: object) -> BillingConfig:
    """The billing told by the tables and lists of a file."""
    top = _ConfigSection(data, "the file")
    digits = top.integer("digits", 2, minimum=0, maximum=PRICE_PLACES)
    plans = {
        name: _plan(name, _ConfigSection(each, f"plan {name!r}"), digits) for name, each in top.table("plans").items()
    }
    subscribers = tuple(
        _subscriber(_ConfigSection(each, f"subscriber {n}")) for n, each in enumerate(top.list("subscribers"), 1)
    )
    advertisers = tuple(
        _advertiser(_ConfigSection(each, f"advertiser {n}")) for n, each in enumerate(top.list("advertisers"), 1)
    )
    billing = BillingConfig(
        time_zone=_check_time_zone(top.text("zone", "UTC")),
        currency=top.text("currency", ""),
        digits=digits,
        rounding=top.choice("rounding", tuple(ROUNDINGS), "half-even"),
        issue_after_s=top.integer("issue_after_s", ISSUE_AFTER_S, minimum=0, maximum=366 * 86_400),
        default_plan=top.text("default_plan", "") or None,
        plans=plans,
        subscribers=subscribers,
        advertisers=advertisers,
    )
    top.reject_unknown_keys()
    if (plans or advertisers) and not billing.currency:
        raise BillingConfigError('the file has prices but no currency; write, say, currency = "EUR"')
    if billing.default_plan is not None and billing.default_plan not in plans:
        raise BillingConfigError(
            f"default_plan is {billing.default_plan!r}, but the plans are: {', '.join(plans) or 'none'}"
        )
    _check_overlaps(subscribers)
    _check_names(advertisers)
    return billing


class _ConfigSection:
    """A table of the file, from which values are taken; what nobody took is a mistake of the person."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            raise BillingConfigError(f"{where} has to be a table, not {data!r}")
        self._data: dict[str, Any] = dict(data)
        self._known_keys: list[str] = []
        self.where = where

    def _take(self, key: str) -> Any:
        self._known_keys.append(key)
        return self._data.pop(key, None)

    def reject_unknown_keys(self) -> None:
        for key in self._data:
            raise BillingConfigError(f"{self.where}: there is no {key!r}; there are: {', '.join(self._known_keys)}")

    def text(self, key: str, default: str | None = None) -> str:
        value = self._take(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value:
            raise BillingConfigError(f"{self.where}: {key} has to be text, {_actual(value)}")
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in choices:
            raise BillingConfigError(f"{self.where}: {key} has to be one of {', '.join(choices)}, not {value!r}")
        return value

    def integer(self, key: str, default: int, *, minimum: int, maximum: int) -> int:
        value = self._take(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise BillingConfigError(
                f"{self.where}: {key} has to be a whole number from {minimum} to {maximum}, not {value!r}"
            )
        return value

    def price(self, key: str, places: int, default: Decimal | None = None) -> Decimal:
        value = self._take(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
            raise BillingConfigError(f"{self.where}: {key} has to be a price such as 9.90, {_actual(value)}")
        try:
            price = Decimal(value)
        except ArithmeticError:
            raise BillingConfigError(f"{self.where}: {key} has to be a price such as 9.90, not {value!r}") from None
        if not price.is_finite() or not 0 <= price <= PRICE_MAX:
            raise BillingConfigError(f"{self.where}: {key} has to be from 0 to {PRICE_MAX}, not {value}")
        if price != round(price, places):
            raise BillingConfigError(f"{self.where}: {key} has more than {places} places after the point: {value}")
        return price

    def month(self, key: str) -> str | None:
        value = self._take(key)
        if value is not None and not (isinstance(value, str) and _MONTH.fullmatch(value)):
            raise BillingConfigError(f'{self.where}: {key} has to be a month such as "2027-01", {_actual(value)}')
        return value

    def table(self, key: str) -> dict[str, Any]:
        value = self._take(key)
        if value is not None and not isinstance(value, dict):
            raise BillingConfigError(f"{self.where}: {key} has to be tables, [{key}.NAME] in TOML, {_actual(value)}")
        return value or {}

    def list(self, key: str) -> list[Any]:
        value = self._take(key)
        if value is not None and not isinstance(value, list):
            raise BillingConfigError(f"{self.where}: {key} has to be a list, [[{key}]] in TOML, {_actual(value)}")
        return value or []


def _actual(value: object) -> str:
    return "but is missing" if value is None else f"not {value!r}"


def _plan(name: str, section: _ConfigSection, digits: int) -> Plan:
    kind = section.choice("kind", PLAN_KINDS)
    if kind == "flat":
        plan = Plan(name, kind, section.price("month", digits))
    else:
        plan = Plan(
            name, kind, section.price("hour", PRICE_PLACES), section.integer("unit_s", 1, minimum=1, maximum=UNIT_S_MAX)
        )
    section.reject_unknown_keys()
    return plan


def _subscriber(section: _ConfigSection) -> Subscriber:
    name = section.text("name")
    section.where = f"subscriber {name!r}"
    channel = section.text("channel", "") or None
    if channel is not None and not _CHANNEL.fullmatch(channel):
        raise BillingConfigError(
            f"{section.where}: channel has to be the 16 digits that name its folder of the tapes, not {channel!r}"
        )
    found = Subscriber(name, section.text("plan"), channel, section.month("since"), section.month("until"))
    section.reject_unknown_keys()
    if found.first_month and found.last_month and found.first_month > found.last_month:
        raise BillingConfigError(f"{section.where}: since {found.first_month} is after until {found.last_month}")
    return found


def _advertiser(section: _ConfigSection) -> Advertiser:
    name = section.text("name")
    section.where = f"advertiser {name!r}"
    adverts = section.list("adverts")
    if not adverts or not all(isinstance(each, str) and each for each in adverts):
        raise BillingConfigError(f'{section.where}: adverts has to be a list of names such as ["spring-*"]')
    zero = Decimal(0)
    found = Advertiser(
        name,
        tuple(adverts),
        section.price("broadcast", PRICE_PLACES, zero),
        section.price("subscriber", PRICE_PLACES, zero),
    )
    section.reject_unknown_keys()
    return found


def _check_time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BillingConfigError(f'there is no time zone {name!r}; write one such as zone = "Europe/Berlin"') from None
    return name


def _check_overlaps(subscribers: tuple[Subscriber, ...]) -> None:
    """Two plans for the same month would leave it to chance which one is billed."""
    seen: dict[tuple[str, str | None], list[Subscriber]] = {}
    for each in subscribers:
        others = seen.setdefault((each.name, each.channel), [])
        others.append(each)
    for (name, _), entries in seen.items():
        entries.sort(key=lambda each: each.months)
        for before, after in pairwise(entries):
            if after.months[0] <= before.months[1]:
                raise BillingConfigError(
                    f"subscriber {name!r} is listed twice for the same months; set since and until"
                )


def _check_names(advertisers: tuple[Advertiser, ...]) -> None:
    names = [each.name for each in advertisers]
    for name in names:
        if names.count(name) > 1:
            raise BillingConfigError(f"advertiser {name!r} is listed twice; give all its adverts in one list")
