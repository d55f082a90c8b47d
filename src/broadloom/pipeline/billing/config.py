"""The billing file: prices of connect time and ads, as TOML or JSON.

Money is exact: prices are decimals with at most four places, never floating point, and a bill is rounded once. The
whole file is checked before anything is billed; an error names the place in one sentence.

    time_zone = "Europe/Berlin"  # months start at midnight here; default "UTC"
    currency = "EUR"             # required if there is any price
    digits = 2                   # decimal places on a bill
    rounding = "half-even"       # half-even, half-up, down or up
    issue_after_s = 172800       # a month is billed when the tapes extend this far beyond its end
    default_plan = "visitor"     # for subscribers that are not listed; without it they are unbilled
    exempt = ["desk", "meter"]   # never billed; default: none

    [plans.reader]
    kind = "flat"                # price per month
    month = 9.90

    [plans.visitor]
    kind = "hour"                # price per hour connected
    hour = 0.45
    unit_s = 60                  # the connect time of a month is rounded up to this unit; default 1
    free = 2                     # hours per month that cost nothing; default 0
    tiers = [{ above = 100, price = 0.30 }]  # what exceeds 100 hours in a month costs less

    [plans.ticker]
    kind = "message"             # price per message of the topic while connected; free and tiers as above
    message = 0.002

    [plans.bulk]
    kind = "byte"                # price per million bytes of these messages
    megabyte = 0.05

    [[subscribers]]
    name = "alice"
    plan = "reader"
    channel = "6f430d6784a166fc" # only in this channel; default: in all
    topic = "sports/**"          # only for topics that match; default: for all
    first_month = "2027-01"      # default: no limit
    last_month = "2027-12"       # instead of months: first_day = "2027-01-17", last_day; flat prices are prorated

    [[advertisers]]
    name = "acme"
    ads = ["spring-*"]           # names of ads, with * and ?
    broadcast_fee = 1.00         # per broadcast
    subscriber_fee = 0.0125      # per subscriber connected at that moment
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
from broadloom.pipeline.billing.terms import (
    PLAN_KINDS,
    PRICE_MAX,
    PRICE_PLACES,
    QUANTITIES,
    QUANTITY_MAX,
    ROUNDINGS,
    TIERS_MAX,
    UNIT_S_MAX,
    Plan,
    Tier,
)

ISSUE_AFTER_S = 2 * 86_400
"""Two days for tapes to arrive before a month is billed. Later tapes lead to corrections."""

_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
_CHANNEL = re.compile(r"[0-9a-f]{16}")
_DAY = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
_ALWAYS = ("0000-00", "9999-99")


class BillingConfigError(BroadloomError):
    """The billing file is invalid. The message says where and what is valid."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    name: str
    plan: str
    """If the plan does not exist, the months are unbilled."""
    channel: str | None = None
    first_month: str | None = None
    """As YYYY-MM."""
    last_month: str | None = None
    topic: str | None = None
    """Only for topics that match this pattern."""
    first_day: str | None = None
    """As YYYY-MM-DD, instead of a month."""
    last_day: str | None = None

    @property
    def months(self) -> tuple[str, str]:
        return self.days[0][:7], self.days[1][:7]

    @property
    def days(self) -> tuple[str, str]:
        """First and last day, as texts that compare."""
        first, last = self.first_month or _ALWAYS[0], self.last_month or _ALWAYS[1]
        return self.first_day or f"{first}-01", self.last_day or f"{last}-31"

    def rank(self, channel: str | None, topic: str | None) -> int | None:
        """None if it is not for this channel and topic; of several, the lowest counts."""
        if self.channel not in (None, channel) or (self.topic is not None and not _matches(self.topic, topic)):
            return None
        is_pattern = self.topic is not None and "*" in self.topic
        return 4 * (self.topic is None) + 2 * is_pattern + (self.channel is None)


@dataclass(frozen=True, slots=True)
class Advertiser:
    name: str
    ads: tuple[str, ...]
    broadcast_fee: Decimal = Decimal(0)
    subscriber_fee: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class BillingConfig:
    """The default, without a file: no plans, nothing billed, months in UTC."""

    time_zone: str = "UTC"
    currency: str = ""
    digits: int = 2
    rounding: str = "half-even"
    issue_after_s: int = ISSUE_AFTER_S
    default_plan: str | None = None
    exempt: tuple[str, ...] = ()
    """Subscribers that are never billed: desks, meters, producers."""
    plans: Mapping[str, Plan] = field(default_factory=dict)
    subscribers: tuple[Subscriber, ...] = ()
    advertisers: tuple[Advertiser, ...] = ()

    def topic_of(self, channel: str) -> str | None:
        """The topic of a channel for which subscribers are listed with that topic only: time there is for that topic,
        also that of members who never identified themselves."""
        found = {each.topic for each in self.subscribers if each.channel == channel and each.topic is not None}
        topic = found.pop() if len(found) == 1 else None
        return topic if topic is not None and "*" not in topic else None

    def advertiser(self, ad: str) -> Advertiser | None:
        """The advertiser that lists the ad exactly, else the first with a matching pattern."""
        exact = [each for each in self.advertisers if ad in each.ads]
        matching = [each for each in self.advertisers if any(fnmatchcase(ad, name) for name in each.ads)]
        return next(iter(exact + matching), None)


def load(path: str | Path) -> BillingConfig:
    """Load a `.toml` or `.json` file. An empty path means no file."""
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
            raise BillingConfigError(f"{path}: a billing file must be named .toml or .json")
    except OSError as problem:
        raise BillingConfigError(f"{path}: cannot be read: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise BillingConfigError(f"{path}: not valid {path.suffix[1:].upper()}: {problem}") from None
    try:
        return parse(data)
    except BillingConfigError as problem:
        raise BillingConfigError(f"{path}: {problem}") from None


def parse(data: object) -> BillingConfig:
    """Parse the content of a billing file."""
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
        time_zone=_check_time_zone(top.text("time_zone", "UTC")),
        currency=top.text("currency", ""),
        digits=digits,
        rounding=top.choice("rounding", tuple(ROUNDINGS), "half-even"),
        issue_after_s=top.integer("issue_after_s", ISSUE_AFTER_S, minimum=0, maximum=366 * 86_400),
        default_plan=top.text("default_plan", "") or None,
        exempt=tuple(top.names("exempt")),
        plans=plans,
        subscribers=subscribers,
        advertisers=advertisers,
    )
    top.reject_unknown_keys()
    if (plans or advertisers) and not billing.currency:
        raise BillingConfigError('the file has prices but no currency; add, for example, currency = "EUR"')
    if billing.default_plan is not None and billing.default_plan not in plans:
        raise BillingConfigError(
            f"default_plan is {billing.default_plan!r}, but the plans are: {', '.join(plans) or 'none'}"
        )
    _check_overlaps(subscribers)
    _check_names(advertisers)
    return billing


class _ConfigSection:
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


def _plan(name: str, section: _ConfigSection, digits: int) -> Plan:
    kind = section.choice("kind", PLAN_KINDS)
    if kind == "flat":
        plan = Plan(name, kind, section.price("month", digits))
    else:
        price = section.price(_PRICE_KEYS[kind], PRICE_PLACES)
        unit_s = section.integer("unit_s", 1, minimum=1, maximum=UNIT_S_MAX) if kind == "hour" else 1
        free = section.quantity("free", QUANTITIES[kind], 0)
        tiers = _tiers(section, QUANTITIES[kind])
        if free:
            price, tiers = Decimal(0), (Tier(free, price), *tiers)
        if any(after.above <= before.above for before, after in pairwise(tiers)):
            raise BillingConfigError(f"{section.where}: tiers must rise, and begin above the free quota")
        plan = Plan(name, kind, price, unit_s, tiers)
    section.reject_unknown_keys()
    return plan


_PRICE_KEYS = {"hour": "hour", "message": "message", "byte": "megabyte"}


def _tiers(section: _ConfigSection, scale: int) -> tuple[Tier, ...]:
    found = []
    given = section.list("tiers")
    if len(given) > TIERS_MAX:
        raise BillingConfigError(f"{section.where}: at most {TIERS_MAX} tiers are possible")
    for number, each in enumerate(given, 1):
        tier = _ConfigSection(each, f"{section.where}, tier {number}")
        found.append(Tier(tier.quantity("above", scale), tier.price("price", PRICE_PLACES)))
        tier.reject_unknown_keys()
    return tuple(found)


def _matches(pattern: str, topic: str | None) -> bool:
    if topic is None or pattern == topic:
        return pattern == topic
    from broadloom.channel.topics import PatternTrie  # slow to import, and rarely needed in workers

    trie: PatternTrie[bool] = PatternTrie()
    trie.add(pattern, True)
    return bool(trie.readers(topic))


def _subscriber(section: _ConfigSection) -> Subscriber:
    name = section.text("name")
    section.where = f"subscriber {name!r}"
    channel = section.text("channel", "") or None
    if channel is not None and not _CHANNEL.fullmatch(channel):
        raise BillingConfigError(
            f"{section.where}: channel must be the 16 hex digits of its tape directory, not {channel!r}"
        )
    topic = section.text("topic", "") or None
    if topic is not None:
        from broadloom.channel.topics import checked_pattern

        try:
            checked_pattern(topic)
        except ValueError as problem:
            raise BillingConfigError(f"{section.where}: {problem}") from None
    found = Subscriber(
        name,
        section.text("plan"),
        channel,
        section.month("first_month"),
        section.month("last_month"),
        topic,
        section.day("first_day"),
        section.day("last_day"),
    )
    section.reject_unknown_keys()
    if (found.first_day and found.first_month) or (found.last_day and found.last_month):
        raise BillingConfigError(f"{section.where}: give a day or a month, not both")
    if (found.first_day or found.last_day) and found.days[0] > found.days[1]:
        raise BillingConfigError(f"{section.where}: {found.days[0]} is after {found.days[1]}")
    if found.first_month and found.last_month and found.first_month > found.last_month:
        raise BillingConfigError(
            f"{section.where}: first_month {found.first_month} is after last_month {found.last_month}"
        )
    return found


def _advertiser(section: _ConfigSection) -> Advertiser:
    name = section.text("name")
    section.where = f"advertiser {name!r}"
    ads = section.list("ads")
    if not ads or not all(isinstance(each, str) and each for each in ads):
        raise BillingConfigError(f'{section.where}: ads must be a list of names such as ["spring-*"]')
    zero = Decimal(0)
    found = Advertiser(
        name,
        tuple(ads),
        section.price("broadcast_fee", PRICE_PLACES, zero),
        section.price("subscriber_fee", PRICE_PLACES, zero),
    )
    section.reject_unknown_keys()
    return found


def _check_time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BillingConfigError(f'unknown time zone {name!r}; use one such as time_zone = "Europe/Berlin"') from None
    return name


def _check_overlaps(subscribers: tuple[Subscriber, ...]) -> None:
    """Two plans for the same month would be ambiguous."""
    seen: dict[tuple[str, str | None, str | None], list[Subscriber]] = {}
    for each in subscribers:
        others = seen.setdefault((each.name, each.channel, each.topic), [])
        others.append(each)
    for (name, _, _), entries in seen.items():
        entries.sort(key=lambda each: each.days)
        for before, after in pairwise(entries):
            if after.days[0] <= before.days[1]:
                raise BillingConfigError(
                    f"subscriber {name!r} is listed twice for the same months; set first_month and last_month"
                )


def _check_names(advertisers: tuple[Advertiser, ...]) -> None:
    names = [each.name for each in advertisers]
    for name in names:
        if names.count(name) > 1:
            raise BillingConfigError(f"advertiser {name!r} is listed twice; give all its ads in one list")
