"""`Entitlements`: who may do what, decided without IO. Each method returns why not, or None.

A condition is a collection of names, or a function that gets a name. A condition that a desk does not know is not met:
a desk with an incomplete configuration admits too few, not too many.
"""

import logging
from collections.abc import Callable, Container, Mapping

from broadloom.apps.delivery.entry import Entry
from broadloom.apps.delivery.subscribers import Subscription
from broadloom.protocol.owner.card import SecurityLevel

log = logging.getLogger("broadloom")

DESK, METER = "desk", "meter"
"""Names on the tickets of desks and meters. The operator issues them to nobody else."""

Condition = Container[str] | Callable[[str], bool]


def everyone(_name: str) -> bool:
    return True


class Entitlements:
    def __init__(
        self,
        *,
        qualifications: Mapping[str, Condition] | None = None,
        creators: Condition = (),
        operators: Condition = (),
    ) -> None:
        self._qualifications = dict(qualifications or {})
        self._creators = creators
        self._operators = operators

    def refusal_to_subscribe(self, name: str, entry: Entry, plan: str, known: Subscription) -> str | None:
        if entry.is_closed:
            return f"{entry.path} is closed"
        if known.is_withdrawn:
            return f"your subscription of {entry.path} was withdrawn; ask the operator"
        offer = entry.offer
        if offer.plans and plan not in offer.plans:
            chosen = f"there is no plan {plan!r}" if plan else "choose a plan"
            return f"{entry.path}: {chosen}; plans: {', '.join(offer.plans)}"
        missing = [each for each in offer.qualifications if not _is_met(self._qualifications.get(each, ()), name)]
        if missing:
            return f"{entry.path}: you do not have the qualification {missing[0]!r}; ask the operator"
        return None

    def refusal_to_produce(self, name: str, entry: Entry, known: Subscription) -> str | None:
        if entry.is_closed:
            return f"{entry.path} is closed"
        if known.is_withdrawn:
            return f"your right to produce {entry.path} was withdrawn; ask the operator"
        if entry.offer.level is not SecurityLevel.TICKETS:
            return None
        if not any(name in producers for producers in entry.offer.topics.values()):
            return f"{name} is not a producer of {entry.path}; ask {entry.creator or 'the operator'}"
        return None

    def refusal_to_create(self, name: str, path: str) -> str | None:
        if self.is_creator(name):
            return None
        return f"{name} may not create {path}; ask the operator"

    def refusal_to_administer(self, name: str, entry: Entry) -> str | None:
        """Closing an entry, and withdrawing its subscribers, is up to its creator and to operators."""
        if name == entry.creator or self.is_operator(name):
            return None
        return f"{entry.path} was created by {entry.creator or 'the operator'}; only they and operators may do this"

    def is_creator(self, name: str) -> bool:
        return _is_met(self._creators, name) or self.is_operator(name)

    def is_operator(self, name: str) -> bool:
        return name == DESK or _is_met(self._operators, name)


def _is_met(condition: Condition, name: str) -> bool:
    if not callable(condition):
        return name in condition
    try:
        return bool(condition(name))
    except Exception:
        log.exception("a condition of the desk failed; it counts as not met")
        return False
