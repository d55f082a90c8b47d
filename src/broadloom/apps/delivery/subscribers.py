"""What desks remember of a subscriber: which topics on which plan, from when to when, and what was withdrawn.

The record is a map of paths, in which the last change of a path wins. Desks that changed it at the same time merge
their versions, and all arrive at the same one.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

PERIODS_MAX = 200
"""Changes of plan that are remembered for one topic; the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class Period:
    """A time on one plan. Times are in milliseconds since 1970."""

    plan: str
    start_ms: int
    end_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscriber of one entry."""

    periods: tuple[Period, ...] = ()
    is_withdrawn: bool = False
    generation: int = 0
    """Counts withdrawals: tickets of an earlier generation are revoked."""
    changed_ms: int = 0

    @property
    def plan(self) -> str | None:
        """The current one; None if the subscription has ended."""
        return self.periods[-1].plan if self.periods and self.periods[-1].end_ms is None else None

    def subscribed(self, plan: str, now_ms: int) -> "Subscription":
        """On this plan from now on. The same plan again changes nothing."""
        if self.plan == plan and not self.is_withdrawn:
            return self
        ended = self.ended(now_ms)
        periods = (*ended.periods, Period(plan, now_ms))[-PERIODS_MAX:]
        return replace(ended, periods=periods, changed_ms=self._next_ms(now_ms))

    def ended(self, now_ms: int) -> "Subscription":
        if self.plan is None:
            return self
        last = replace(self.periods[-1], end_ms=max(now_ms, self.periods[-1].start_ms))
        return replace(self, periods=(*self.periods[:-1], last), changed_ms=self._next_ms(now_ms))

    def withdrawn(self, now_ms: int) -> "Subscription":
        """No desk admits the subscriber again until it is reinstated."""
        ended = self.ended(now_ms)
        return replace(ended, is_withdrawn=True, generation=self.generation + 1, changed_ms=self._next_ms(now_ms))

    def reinstated(self, now_ms: int) -> "Subscription":
        return replace(self, is_withdrawn=False, changed_ms=self._next_ms(now_ms))

    def _next_ms(self, now_ms: int) -> int:
        return max(now_ms, self.changed_ms + 1)


@dataclass(frozen=True, slots=True)
class SubscriberRecord:
    name: str
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    """By the path of the entry."""

    def get(self, path: str) -> Subscription:
        return self.subscriptions.get(path, Subscription())

    def with_subscription(self, path: str, subscription: Subscription) -> "SubscriberRecord":
        return replace(self, subscriptions={**self.subscriptions, path: subscription})

    def merged(self, other: "SubscriberRecord") -> "SubscriberRecord":
        """Commutative, associative and idempotent."""
        paths = sorted({*self.subscriptions, *other.subscriptions})
        return replace(self, subscriptions={path: max(self.get(path), other.get(path), key=_rank) for path in paths})

    def as_dict(self) -> dict[str, Any]:
        """JSON-serializable values."""
        return asdict(self)

    def encode(self) -> bytes:
        return json.dumps(self.as_dict(), ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Account:
    """What desks know of one subscriber."""

    name: str
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    """By the path of the entry, also those that have ended. Topics without plans are not remembered."""
    is_creator: bool = False
    """It may create topics."""
    is_operator: bool = False
    """It may close and withdraw what others created."""


def _rank(subscription: Subscription) -> tuple[int, int, bool, str]:
    return (
        subscription.changed_ms,
        subscription.generation,
        subscription.is_withdrawn,
        json.dumps(asdict(subscription), sort_keys=True),
    )


def decode_record(data: bytes) -> SubscriberRecord:
    """Raises `ValueError`."""
    try:
        values: dict[str, Any] = json.loads(data)
        return SubscriberRecord(values["name"], _subscriptions(values["subscriptions"]))
    except (AttributeError, KeyError, TypeError) as problem:
        raise ValueError(f"not a record of a subscriber: {problem}") from None


def decode_account(values: Mapping[str, Any]) -> Account:
    """Raises `ValueError`."""
    try:
        subscriptions = _subscriptions(values["subscriptions"])
        return Account(str(values["name"]), subscriptions, bool(values["is_creator"]), bool(values["is_operator"]))
    except (AttributeError, KeyError, TypeError) as problem:
        raise ValueError(f"not an account: {problem}") from None


def decode_subscription(values: Any) -> Subscription:
    """Raises `ValueError`."""
    try:
        return Subscription(**{**values, "periods": tuple(Period(**period) for period in values["periods"])})
    except (AttributeError, KeyError, TypeError) as problem:
        raise ValueError(f"not a subscription: {problem}") from None


def _subscriptions(values: Mapping[str, Any]) -> dict[str, Subscription]:
    return {path: decode_subscription(each) for path, each in values.items()}
