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

from weft.errors import WeftError
from weft.pipeline.terms import KINDS, PRICE_MAX, PRICE_PLACES, ROUNDINGS, UNIT_S_MAX, Plan

ISSUE_AFTER_S = 2 * 86_400
"""Two days for tapes to come in before a month is billed. What comes later is corrected."""

_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
_CHANNEL = re.compile(r"[0-9a-f]{16}")
_ALWAYS = ("0000-00", "9999-99")


class WrongBilling(WeftError):
    """The billing file cannot be used; the text says where and what to write instead."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    name: str
    plan: str
    """May be one that there is not: then its months are told as unbilled."""
    channel: str | None = None
    since: str | None = None
    """First month, as YYYY-MM."""
    until: str | None = None
    """Last month."""

    @property
    def months(self) -> tuple[str, str]:
        return self.since or _ALWAYS[0], self.until or _ALWAYS[1]


@dataclass(frozen=True, slots=True)
class Advertiser:
    name: str
    adverts: tuple[str, ...]
    broadcast: Decimal = Decimal(0)
    subscriber: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Billing:
    """Without a file: no plan, nobody billed, months in UTC."""

    zone: str = "UTC"
    currency: str = ""
    digits: int = 2
    rounding: str = "half-even"
    issue_after_s: int = ISSUE_AFTER_S
    default_plan: str | None = None
    plans: Mapping[str, Plan] = field(default_factory=dict)
    subscribers: tuple[Subscriber, ...] = ()
    advertisers: tuple[Advertiser, ...] = ()

    def advertiser(self, advert: str) -> Advertiser | None:
        """Whose advert it is: who names it exactly, else the first in the file with a pattern that fits."""
        exact = [each for each in self.advertisers if advert in each.adverts]
        fitting = [each for each in self.advertisers if any(fnmatchcase(advert, name) for name in each.adverts)]
        return next(iter(exact + fitting), None)


def load(path: str | Path) -> Billing:
    """The billing of a file, by its ending `.toml` or `.json`. An empty path is no file: nobody is billed."""
    if not str(path):
        return Billing()
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".toml":
            data = tomllib.loads(text, parse_float=Decimal)
        elif path.suffix == ".json":
            data = json.loads(text, parse_float=Decimal)
        else:
            raise WrongBilling(f"{path}: a billing file is named .toml or .json")
    except OSError as problem:
        raise WrongBilling(f"{path}: cannot be read: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise WrongBilling(f"{path}: is not {path.suffix[1:].upper()}: {problem}") from None
    try:
        return parse(data)
    except WrongBilling as problem:
        raise WrongBilling(f"{path}: {problem}") from None


def parse(data: object) -> Billing:
    """The billing told by the tables and lists of a file."""
    top = _Part(data, "the file")
    digits = top.whole("digits", 2, least=0, most=PRICE_PLACES)
    plans = {name: _plan(name, _Part(each, f"plan {name!r}"), digits) for name, each in top.table("plans").items()}
    subscribers = tuple(
        _subscriber(_Part(each, f"subscriber {n}")) for n, each in enumerate(top.list("subscribers"), 1)
    )
    advertisers = tuple(
        _advertiser(_Part(each, f"advertiser {n}")) for n, each in enumerate(top.list("advertisers"), 1)
    )
    billing = Billing(
        zone=_zone(top.text("zone", "UTC")),
        currency=top.text("currency", ""),
        digits=digits,
        rounding=top.choice("rounding", tuple(ROUNDINGS), "half-even"),
        issue_after_s=top.whole("issue_after_s", ISSUE_AFTER_S, least=0, most=366 * 86_400),
        default_plan=top.text("default_plan", "") or None,
        plans=plans,
        subscribers=subscribers,
        advertisers=advertisers,
    )
    top.nothing_else()
    if (plans or advertisers) and not billing.currency:
        raise WrongBilling('the file has prices but no currency; write, say, currency = "EUR"')
    if billing.default_plan is not None and billing.default_plan not in plans:
        raise WrongBilling(f"default_plan is {billing.default_plan!r}, but the plans are: {', '.join(plans) or 'none'}")
    _check_overlaps(subscribers)
    _check_names(advertisers)
    return billing


class _Part:
    """A table of the file, from which values are taken; what nobody took is a mistake of the person."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            raise WrongBilling(f"{where} has to be a table, not {data!r}")
        self._data: dict[str, Any] = dict(data)
        self._known: list[str] = []
        self.where = where

    def _take(self, key: str) -> Any:
        self._known.append(key)
        return self._data.pop(key, None)

    def nothing_else(self) -> None:
        for key in self._data:
            raise WrongBilling(f"{self.where}: there is no {key!r}; there are: {', '.join(self._known)}")

    def text(self, key: str, default: str | None = None) -> str:
        value = self._take(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value:
            raise WrongBilling(f"{self.where}: {key} has to be text, {_found(value)}")
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in choices:
            raise WrongBilling(f"{self.where}: {key} has to be one of {', '.join(choices)}, not {value!r}")
        return value

    def whole(self, key: str, default: int, *, least: int, most: int) -> int:
        value = self._take(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise WrongBilling(f"{self.where}: {key} has to be a whole number from {least} to {most}, not {value!r}")
        return value

    def price(self, key: str, places: int, default: Decimal | None = None) -> Decimal:
        value = self._take(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
            raise WrongBilling(f"{self.where}: {key} has to be a price such as 9.90, {_found(value)}")
        try:
            price = Decimal(value)
        except ArithmeticError:
            raise WrongBilling(f"{self.where}: {key} has to be a price such as 9.90, not {value!r}") from None
        if not price.is_finite() or not 0 <= price <= PRICE_MAX:
            raise WrongBilling(f"{self.where}: {key} has to be from 0 to {PRICE_MAX}, not {value}")
        if price != round(price, places):
            raise WrongBilling(f"{self.where}: {key} has more than {places} places after the point: {value}")
        return price

    def month(self, key: str) -> str | None:
        value = self._take(key)
        if value is not None and not (isinstance(value, str) and _MONTH.fullmatch(value)):
            raise WrongBilling(f'{self.where}: {key} has to be a month such as "2027-01", {_found(value)}')
        return value

    def table(self, key: str) -> dict[str, Any]:
        value = self._take(key)
        if value is not None and not isinstance(value, dict):
            raise WrongBilling(f"{self.where}: {key} has to be tables, [{key}.NAME] in TOML, {_found(value)}")
        return value or {}

    def list(self, key: str) -> list[Any]:
        value = self._take(key)
        if value is not None and not isinstance(value, list):
            raise WrongBilling(f"{self.where}: {key} has to be a list, [[{key}]] in TOML, {_found(value)}")
        return value or []


def _found(value: object) -> str:
    return "but is missing" if value is None else f"not {value!r}"


def _plan(name: str, part: _Part, digits: int) -> Plan:
    kind = part.choice("kind", KINDS)
    if kind == "flat":
        plan = Plan(name, kind, part.price("month", digits))
    else:
        plan = Plan(name, kind, part.price("hour", PRICE_PLACES), part.whole("unit_s", 1, least=1, most=UNIT_S_MAX))
    part.nothing_else()
    return plan


def _subscriber(part: _Part) -> Subscriber:
    name = part.text("name")
    part.where = f"subscriber {name!r}"
    channel = part.text("channel", "") or None
    if channel is not None and not _CHANNEL.fullmatch(channel):
        raise WrongBilling(
            f"{part.where}: channel has to be the 16 digits that name its folder of the tapes, not {channel!r}"
        )
    found = Subscriber(name, part.text("plan"), channel, part.month("since"), part.month("until"))
    part.nothing_else()
    if found.since and found.until and found.since > found.until:
        raise WrongBilling(f"{part.where}: since {found.since} is after until {found.until}")
    return found


def _advertiser(part: _Part) -> Advertiser:
    name = part.text("name")
    part.where = f"advertiser {name!r}"
    adverts = part.list("adverts")
    if not adverts or not all(isinstance(each, str) and each for each in adverts):
        raise WrongBilling(f'{part.where}: adverts has to be a list of names such as ["spring-*"]')
    zero = Decimal(0)
    found = Advertiser(
        name,
        tuple(adverts),
        part.price("broadcast", PRICE_PLACES, zero),
        part.price("subscriber", PRICE_PLACES, zero),
    )
    part.nothing_else()
    return found


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise WrongBilling(f'there is no time zone {name!r}; write one such as zone = "Europe/Berlin"') from None
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
                raise WrongBilling(f"subscriber {name!r} is listed twice for the same months; set since and until")


def _check_names(advertisers: tuple[Advertiser, ...]) -> None:
    names = [each.name for each in advertisers]
    for name in names:
        if names.count(name) > 1:
            raise WrongBilling(f"advertiser {name!r} is listed twice; give all its adverts in one list")
