"""What members of the directory and desks say to each other in direct requests, and subscribers to meters: as JSON.

A desk knows who asks from the caller's ticket. The request has a public key, never a private one: the desk signs it,
and nobody but the subscriber can use the ticket.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

DESK_LAYER, METER_LAYER = "De", "Me"
PATHS_MAX = 256
"""Entries in one request."""
TEXT_BYTES_MAX = 500
KEY_BYTES = 32

R = TypeVar("R", bound="DeskRequest | DeskReply | Presence | AudienceQuery | Audience")


class Action(StrEnum):
    SUBSCRIBE = "subscribe"
    END = "end"
    """End a subscription of one's own."""
    PRODUCE = "produce"
    METER = "meter"
    CREATE = "create"
    CLOSE = "close"
    WITHDRAW = "withdraw"
    REINSTATE = "reinstate"
    ACCOUNT = "account"
    """What the desk knows of the caller."""
    SUBSCRIBERS = "subscribers"
    """The subscribers of an entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskRequest:
    action: Action
    paths: tuple[str, ...] = ()
    """Of entries."""
    plan: str = ""
    key: str = ""
    """The public key for tickets, as base64."""
    name: str = ""
    """Of the subscriber that is withdrawn or reinstated."""
    text: str = ""
    """Why an entry is closed."""
    offer: Mapping[str, Any] = field(default_factory=dict)
    """What is created."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", Action(self.action))
        object.__setattr__(self, "paths", tuple(self.paths))
        if len(self.paths) > PATHS_MAX or not all(isinstance(each, str) for each in self.paths):
            raise ValueError(f"at most {PATHS_MAX} paths can be asked for at once")
        for name in ("plan", "key", "name", "text"):
            value = getattr(self, name)
            if not isinstance(value, str) or len(value.encode(errors="surrogatepass")) > TEXT_BYTES_MAX:
                raise ValueError(f"{name} must be text of at most {TEXT_BYTES_MAX} bytes")
        if not isinstance(self.offer, Mapping):
            raise ValueError("offer must be a table")

    @property
    def public_key(self) -> bytes:
        """Raises `ValueError`."""
        key = base64.b64decode(self.key, validate=True)
        if len(key) != KEY_BYTES:
            raise ValueError("the request has no key for a ticket")
        return key


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The answer for one entry."""

    path: str
    refusal: str = ""
    """Why not; empty if it was granted."""
    ticket: str = ""
    """The certificate of the ticket, as base64 of its DER."""
    key: str = ""
    """The shared key of a channel without tickets."""
    revoked: str = ""
    """The list of revoked tickets, as base64 of its DER; empty if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskReply:
    grants: tuple[Grant, ...] = ()
    account: Mapping[str, Any] = field(default_factory=dict)
    """An `Account`."""
    subscribers: Mapping[str, Any] = field(default_factory=dict)
    """A `Subscription` by name."""

    def __post_init__(self) -> None:
        given: tuple[Any, ...] = tuple(self.grants)
        grants = tuple(each if isinstance(each, Grant) else Grant(**each) for each in given)
        object.__setattr__(self, "grants", grants)


class PresenceState(StrEnum):
    START = "start"
    HERE = "here"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """A subscriber tells a meter that it is here."""

    id: str
    """The same for the same fact, however often and to however many meters it is sent."""
    state: PresenceState
    topics: tuple[str, ...]
    plan: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", PresenceState(self.state))
        object.__setattr__(self, "topics", tuple(self.topics))
        texts: tuple[Any, ...] = (self.id, self.plan, *self.topics)
        if not all(isinstance(each, str) and len(each) <= TEXT_BYTES_MAX for each in texts) or not self.topics:
            raise ValueError("not an identification")


@dataclass(frozen=True, slots=True, kw_only=True)
class AudienceQuery:
    """A member of the directory asks a meter how many subscribers are connected to topics."""

    topics: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", tuple(self.topics))
        if len(self.topics) > PATHS_MAX or not all(isinstance(each, str) for each in self.topics):
            raise ValueError(f"at most {PATHS_MAX} topics can be asked for at once")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    counts: Mapping[str, int] = field(default_factory=dict)
    """By topic. A topic that the meter is not connected to is missing."""

    def __post_init__(self) -> None:
        counts: Any = self.counts
        if not isinstance(counts, Mapping) or not all(isinstance(each, int) for each in counts.values()):
            raise ValueError("not an audience")


def encode(message: "DeskRequest | DeskReply | Presence | AudienceQuery | Audience") -> bytes:
    return json.dumps(asdict(message), ensure_ascii=False, separators=(",", ":")).encode()


def decode(kind: type[R], data: bytes) -> R:
    """Raises `ValueError`. Fields of later versions are ignored."""
    try:
        values = json.loads(data)
        known = {each.name for each in fields(kind)}
        return kind(**{name: value for name, value in values.items() if name in known})
    except (AttributeError, KeyError, TypeError, RecursionError) as problem:
        raise ValueError(f"not a {kind.__name__}: {problem}") from None
