"""`ChannelCard`: what the owner says about a channel: security level, degree, quotas by role, open or closed.

A card is JSON, so that owners can read what they sign. It is decoded only after the signature was verified.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from broadloom.protocol.channel_name import ChannelName
from broadloom.protocol.identity import Role
from broadloom.protocol.settings import DEGREE_MAX, DEGREE_MIN

CARD_VERSION = 1
CARD_BYTES_MAX = 16 << 10
NUMBER_MAX = (1 << 63) - 1
TEXT_BYTES_MAX = 1000
BOOTSTRAP_MAX = 64
BURST_S = 5.0
BURST_S_MIN, BURST_S_MAX = 1.0, 60.0


class SecurityLevel(StrEnum):
    """How the members of a channel connect: the modes of docs/security.md."""

    PLAIN = "plain"
    TLS = "tls"
    """A shared key, or the key that is derived from the name."""
    SIGNED = "signed"
    """The same, and messages are signed."""
    TICKETS = "tickets"


class CardState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Quota:
    """What one member may send. None: no limit."""

    messages_per_s: float | None = None
    bytes_per_s: float | None = None
    burst_s: float = BURST_S
    """A member that was quiet may send as much at once as in this time."""
    message_bytes_max: int | None = None
    requests_per_s: float | None = None
    """Direct requests and one-way messages, to all members together."""

    def __post_init__(self) -> None:
        for name in ("messages_per_s", "bytes_per_s", "message_bytes_max", "requests_per_s"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
                raise ValueError(f"{name} must be a number greater than 0, not {value!r}")
        if self.message_bytes_max is not None and not isinstance(self.message_bytes_max, int):
            raise ValueError(f"message_bytes_max must be a whole number, not {self.message_bytes_max!r}")
        if not BURST_S_MIN <= self.burst_s <= BURST_S_MAX:
            raise ValueError(f"burst_s must be between {BURST_S_MIN:g} and {BURST_S_MAX:g}, not {self.burst_s!r}")

    @property
    def is_limited(self) -> bool:
        return self.limits_broadcasts or self.requests_per_s is not None

    @property
    def limits_broadcasts(self) -> bool:
        return any(each is not None for each in (self.messages_per_s, self.bytes_per_s, self.message_bytes_max))


@dataclass(frozen=True, slots=True)
class ChannelCard:
    """The card of one channel. The owner signs it (`SignedCard`)."""

    channel: str
    number: int = 0
    """Of two cards, the one with the higher number is valid. 0: chosen when it is signed."""
    level: SecurityLevel = SecurityLevel.TICKETS
    degree: int = 4
    bootstrap: tuple[str, ...] = ()
    """Bootstrap hosts for members that give none."""
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    """By role: `producer`, `consumer`. On a channel without tickets, every member is a producer."""
    state: CardState = CardState.OPEN
    text: str = ""
    """For members: why the channel is closed, whom to ask."""

    def __post_init__(self) -> None:
        ChannelName.parse(self.channel)
        object.__setattr__(self, "level", SecurityLevel(self.level))
        object.__setattr__(self, "state", CardState(self.state))
        object.__setattr__(self, "bootstrap", tuple(self.bootstrap))
        _check_whole("number", self.number, 0, NUMBER_MAX)
        _check_whole("degree", self.degree, DEGREE_MIN, DEGREE_MAX)
        if len(self.bootstrap) > BOOTSTRAP_MAX or not all(isinstance(each, str) for each in self.bootstrap):
            raise ValueError(f"bootstrap must be a list of at most {BOOTSTRAP_MAX} addresses")
        for role, quota in self.quotas.items():
            if Role(role) and not isinstance(quota, Quota):
                raise ValueError(f"the quota of {role} must be a Quota, not {quota!r}")
        if len(self.text.encode()) > TEXT_BYTES_MAX or not self.text.isprintable():
            raise ValueError(f"text must be at most {TEXT_BYTES_MAX} bytes of printable text")

    @property
    def is_closed(self) -> bool:
        return self.state is CardState.CLOSED

    def quota_of(self, role: Role) -> Quota | None:
        return self.quotas.get(role.value)

    def closed(self, text: str = "") -> "ChannelCard":
        """The card that closes this channel, to be signed."""
        return replace(self, number=0, state=CardState.CLOSED, text=text)

    def as_dict(self) -> dict[str, Any]:
        """The card as JSON-serializable values."""
        return {
            "channel": self.channel,
            "number": self.number,
            "level": self.level.value,
            "degree": self.degree,
            "bootstrap": list(self.bootstrap),
            "quotas": {role: asdict(quota) for role, quota in self.quotas.items()},
            "state": self.state.value,
            "text": self.text,
        }


def encode_card(card: ChannelCard) -> bytes:
    return json.dumps({"version": CARD_VERSION, **card.as_dict()}, indent=1).encode()


def decode_card(data: bytes) -> ChannelCard:
    """Raises `ValueError` if it is not a card of a version that this program knows."""
    if len(data) > CARD_BYTES_MAX:
        raise ValueError(f"a card of {len(data):,} bytes; at most {CARD_BYTES_MAX:,} are allowed")
    try:
        values = json.loads(data)
        if values.pop("version") != CARD_VERSION:
            raise ValueError("the card is of another version of Broadloom; install a newer one")
        quotas = {role: Quota(**quota) for role, quota in values.pop("quotas").items()}
        return ChannelCard(**values, quotas=quotas)
    except (AttributeError, KeyError, TypeError, RecursionError) as problem:
        raise ValueError(f"not a card: {problem}") from None


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least:,} to {most:,}, not {value!r}")
