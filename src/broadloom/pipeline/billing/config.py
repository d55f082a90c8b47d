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

    [sales]                      # fees for lots sold in auctions, owed by the seller
    percent = 2.5                # of the price; default 0
    lot_fee = 1.00               # for each lot; default 0
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
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from broadloom.pipeline.billing.config_section import BillingConfigError, ConfigSection
from broadloom.pipeline.billing.sales import SaleFees
from broadloom.pipeline.billing.terms import (
    PLAN_KINDS,
    PRICE_PLACES,
    QUANTITIES,
    ROUNDINGS,
    TIERS_MAX,
    UNIT_S_MAX,
    Plan,
    Tier,
)

ISSUE_AFTER_S = 2 * 86_400
"""Two days for tapes to arrive before a month is billed. Later tapes lead to corrections."""

_CHANNEL = re.compile(r"[0-9a-f]{16}")
_ALWAYS = ("0000-00", "9999-99")


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
    sales: SaleFees | None = None
    """None: lots that are sold cost their sellers nothing."""

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
    top = ConfigSection(data, "the file")
    digits = top.integer("digits", 2, minimum=0, maximum=PRICE_PLACES)
    plans = {
        name: _plan(name, ConfigSection(each, f"plan {name!r}"), digits) for name, each in top.table("plans").items()
    }
    subscribers = tuple(
        _subscriber(ConfigSection(each, f"subscriber {n}")) for n, each in enumerate(top.list("subscribers"), 1)
    )
    advertisers = tuple(
        _advertiser(ConfigSection(each, f"advertiser {n}")) for n, each in enumerate(top.list("advertisers"), 1)
    )
    sales = top.table("sales")
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
        sales=_sale_fees(ConfigSection(sales, "sales")) if sales else None,
    )
    top.reject_unknown_keys()
    if (plans or advertisers or sales) and not billing.currency:
        raise BillingConfigError('the file has prices but no currency; add, for example, currency = "EUR"')
    if billing.default_plan is not None and billing.default_plan not in plans:
        raise BillingConfigError(
            f"default_plan is {billing.default_plan!r}, but the plans are: {', '.join(plans) or 'none'}"
        )
    _check_overlaps(subscribers)
    _check_names(advertisers)
    return billing


def _plan(name: str, section: ConfigSection, digits: int) -> Plan:
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


def _tiers(section: ConfigSection, scale: int) -> tuple[Tier, ...]:
    found = []
    given = section.list("tiers")
    if len(given) > TIERS_MAX:
        raise BillingConfigError(f"{section.where}: at most {TIERS_MAX} tiers are possible")
    for number, each in enumerate(given, 1):
        tier = ConfigSection(each, f"{section.where}, tier {number}")
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


def _subscriber(section: ConfigSection) -> Subscriber:
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


def _advertiser(section: ConfigSection) -> Advertiser:
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


def _sale_fees(section: ConfigSection) -> SaleFees:
    zero = Decimal(0)
    found = SaleFees(section.price("percent", PRICE_PLACES, zero), section.price("lot_fee", PRICE_PLACES, zero))
    section.reject_unknown_keys()
    if found.percent > 100:
        raise BillingConfigError(f"{section.where}: percent must be from 0 to 100, not {found.percent}")
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
