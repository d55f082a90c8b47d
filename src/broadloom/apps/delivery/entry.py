"""`Entry`: one channel of the directory with its topics, as it is stored in a mailbox.

An entry is either one topic with a channel of its own, or a category with one channel for all its topics. Everything
in it was written by a desk, whose ticket signs the mailbox; the card is signed by the owner of the channel as well.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from broadloom.protocol.owner.card import SecurityLevel
from broadloom.security import SignedCard
from broadloom.security.authority import NAME_BYTES_MAX
from broadloom.wire.message_headers import checked_topic

ENTRY_VERSION = 1
ENTRY_BYTES_MAX = 60 << 10
"""It has to fit into a mailbox."""
PATH_BYTES_MAX = 200
LEVELS_MAX = 12
TOPICS_MAX = 500
NAMES_MAX = 100
"""Producers of a topic, plans, and qualifications."""
TITLE_BYTES_MAX = 200
IDENTIFY_S = 3600.0
IDENTIFY_S_MIN, IDENTIFY_S_MAX = 0.05, 86_400.0


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What the creator of an entry decides. Values that cannot work raise `ValueError`."""

    path: str
    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The topics of the channel, each with the names of its producers. Without any, it is a topic without producers."""
    title: str = ""
    level: SecurityLevel = SecurityLevel.TICKETS
    plans: tuple[str, ...] = ()
    """Names of plans in the billing file, of which a subscriber chooses one. Empty: free of charge."""
    qualifications: tuple[str, ...] = ()
    """Conditions that a desk checks before it admits a subscriber."""
    identify_s: float = IDENTIFY_S
    """Interval at which subscribers identify themselves to meters."""

    def __post_init__(self) -> None:
        check_path(self.path)
        object.__setattr__(self, "level", SecurityLevel(self.level))
        object.__setattr__(self, "topics", {path: tuple(names) for path, names in self.topics.items()})
        if not self.topics:
            object.__setattr__(self, "topics", {self.path: ()})
        for name in ("plans", "qualifications"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        if len(self.topics) > TOPICS_MAX:
            raise ValueError(f"{self.path}: {len(self.topics):,} topics; one channel has at most {TOPICS_MAX}")
        for path, producers in self.topics.items():
            if path != self.path and not check_path(path).startswith(f"{self.path}/"):
                raise ValueError(f"the topic {path} is not below {self.path}")
            _names(f"the producers of {path}", producers)
        if not _is_text(self.title, TITLE_BYTES_MAX):
            raise ValueError(f"title must be at most {TITLE_BYTES_MAX} bytes of printable text")
        if isinstance(self.identify_s, bool) or not isinstance(self.identify_s, int | float):
            raise ValueError(f"identify_s must be a number of seconds, not {self.identify_s!r}")
        if not IDENTIFY_S_MIN <= self.identify_s <= IDENTIFY_S_MAX:
            raise ValueError(f"identify_s must be from {IDENTIFY_S_MIN:g} to {IDENTIFY_S_MAX:g} seconds")
        if self.level is not SecurityLevel.TICKETS and (self.plans or self.qualifications or any(self.topics.values())):
            raise ValueError(
                f"{self.path}: producers, plans and qualifications need the level tickets, because only a ticket "
                "proves a name"
            )

    def as_dict(self) -> dict[str, Any]:
        """JSON-serializable values, from which `Offer.parse` makes an equal one."""
        return {
            "path": self.path,
            "topics": {path: list(names) for path, names in self.topics.items()},
            "title": self.title,
            "level": self.level.value,
            "plans": list(self.plans),
            "qualifications": list(self.qualifications),
            "identify_s": self.identify_s,
        }

    @classmethod
    def parse(cls, values: Any) -> "Offer":
        """Raises `ValueError`."""
        try:
            return cls(**values)
        except (TypeError, AttributeError) as problem:
            raise ValueError(f"not an entry: {problem}") from None


@dataclass(frozen=True)
class Entry:
    """An offer with its channel."""

    offer: Offer
    card_base64: str
    """The card, with the signature of the channel's owner. It is decoded when it is used, as the next."""
    owner_base64: str
    """The certificate of the channel's owner, as DER."""
    creator: str = ""
    generation: int = 0
    """Counts the entries that were created under this path."""
    is_closed: bool = False

    @classmethod
    def of(cls, offer: Offer, card: SignedCard, creator: str, generation: int) -> "Entry":
        document, owner = (
            base64.b64encode(each).decode() for each in (card.document, card.owner.public_bytes(Encoding.DER))
        )
        return cls(offer, document, owner, creator, generation, card.card.is_closed)

    @property
    def path(self) -> str:
        return self.offer.path

    @cached_property
    def card(self) -> SignedCard:
        """Verified when it is used: verifying ten thousand would take seconds. Raises `ValueError`."""
        document, owner = base64.b64decode(self.card_base64), base64.b64decode(self.owner_base64)
        return SignedCard.verify(document, x509.load_der_x509_certificate(owner))

    @property
    def channel(self) -> str:
        return self.card.card.channel

    def producers(self, topic: str) -> tuple[str, ...]:
        return self.offer.topics.get(topic, ())

    def encode(self) -> bytes:
        values = {
            "version": ENTRY_VERSION,
            **self.offer.as_dict(),
            "card": self.card_base64,
            "owner": self.owner_base64,
            "creator": self.creator,
            "generation": self.generation,
            "is_closed": self.is_closed,
        }
        data = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
        if len(data) > ENTRY_BYTES_MAX:
            raise ValueError(f"{self.path}: the entry has {len(data):,} bytes, more than {ENTRY_BYTES_MAX:,}")
        return data


def decode_entry(data: bytes) -> Entry:
    """Raises `ValueError` if it is not an entry of a version that this program knows."""
    try:
        values = json.loads(data)
        if values.pop("version") != ENTRY_VERSION:
            raise ValueError("the entry is of another version of Broadloom; install a newer one")
        card, owner = str(values.pop("card")), str(values.pop("owner"))
        creator, generation, is_closed = values.pop("creator"), values.pop("generation"), values.pop("is_closed")
        return Entry(Offer.parse(values), card, owner, str(creator), int(generation), bool(is_closed))
    except (AttributeError, KeyError, TypeError, RecursionError) as problem:
        raise ValueError(f"not an entry: {problem}") from None


def check_path(path: object) -> str:
    """Raises `ValueError` if this cannot be the path of a topic or category."""
    if not isinstance(path, str):
        raise ValueError(f"a path is text, as in sports/nfl/scores, not {path!r}")
    checked_topic(path)
    if "*" in path or not _is_text(path, PATH_BYTES_MAX) or path.count("/") >= LEVELS_MAX:
        raise ValueError(
            f"path {path[:60]!r}: must have at most {LEVELS_MAX} levels and {PATH_BYTES_MAX} bytes of printable text, "
            "without `*`"
        )
    return path


def _names(what: str, names: Any) -> tuple[str, ...]:
    if names in ((), []):
        return ()
    if isinstance(names, str) or not all(isinstance(each, str) and each for each in names):
        raise ValueError(f"{what} must be a list of names, not {names!r}")
    if len(names) > NAMES_MAX or not all(_is_text(each, NAME_BYTES_MAX) for each in names):
        raise ValueError(f"{what} must be at most {NAMES_MAX} names of at most {NAME_BYTES_MAX} bytes")
    return tuple(names)


def _is_text(text: object, bytes_max: int) -> bool:
    if not isinstance(text, str) or not text.isprintable():
        return False
    return len(text if text.isascii() else text.encode(errors="surrogatepass")) <= bytes_max
