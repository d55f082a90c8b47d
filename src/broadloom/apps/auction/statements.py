"""What members say in an auction, and how it is signed: the entries of the agreed order.

A statement is JSON. Its author signs it with the session key of its ticket, and sends the certificate along, so that
anyone who knows the authority of the channel can verify it, now or years later, and no other member can bid in the
author's name. Each has a random id: a statement that is sent twice, or copied by another member, counts once.
"""

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from broadloom.apps.auction.lot import amount_text, check_id, parse_amount
from broadloom.apps.nesting import is_too_deep

VERSION = b"A1"
SIGNATURE_BYTES = 64
CREDENTIAL_BYTES_MAX = 4096
STATEMENT_BYTES_MAX = 40_000
STATEMENT_PREFIX = b"auction\0"
"""The session key also signs posts, mailboxes and receipts: none of them is valid as another."""
_DIGITS = {"id": 32, "commitment": 64, "salt": 64, "chain": 64}
_HEX = re.compile("[0-9a-f]+")
_HEAD = struct.Struct(">2sH")


class Action(StrEnum):
    OPEN = "open"
    """A seller opens a lot."""
    WITHDRAW = "withdraw"
    """The seller withdraws its lot, before the first bid."""
    BID = "bid"
    REVEAL = "reveal"
    """A bidder shows what its sealed bid was."""
    GOING = "going"
    """The auctioneer calls: going once, going twice. The following are calls as well."""
    LOWER = "lower"
    """Dutch: the price falls by one step."""
    UNSEAL = "unseal"
    """Sealed kinds: no more bids; bidders reveal theirs."""
    GONE = "gone"

    @property
    def is_call(self) -> bool:
        return self in (Action.GOING, Action.LOWER, Action.UNSEAL, Action.GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    action: Action
    id: str
    """Random, 32 hex digits."""
    at_ms: int
    """By the author's clock. Decides only whether its ticket was valid."""
    lot: str
    amount: Decimal | None = None
    commitment: str = ""
    """For a sealed bid, the hash of the amount and a salt (`sealed.py`)."""
    salt: str = ""
    terms: Mapping[str, Any] = field(default_factory=dict)
    """For a lot that is opened, its fields."""
    after: int = 0
    """For a call, the number of the last entry that the auctioneer had seen, and the hash chain up to it."""
    chain: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", Action(self.action))
        if self.amount is not None:
            object.__setattr__(self, "amount", parse_amount(self.amount))
        for name, digits in _DIGITS.items():
            value = getattr(self, name)
            if not isinstance(value, str) or (value and not (len(value) == digits and _HEX.fullmatch(value))):
                raise ValueError(f"{name} must have {digits} hex digits")
        if not self.id:
            raise ValueError("a statement has an id")
        check_id(self.lot)
        for name in ("at_ms", "after"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
                raise ValueError(f"{name} must be a whole number")
        if not isinstance(self.terms, Mapping):
            raise ValueError("terms must be a table")
        if is_too_deep(self.terms):
            raise ValueError("terms must not be nested deeply")

    def encode(self) -> bytes:
        values: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Decimal) or value not in (None, "", 0, {}):
                values[each.name] = amount_text(value) if isinstance(value, Decimal) else value
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Statement":
        """Raises `ValueError`."""
        try:
            return cls(**json.loads(data))
        except (AttributeError, TypeError, RecursionError) as problem:
            raise ValueError(f"not a statement: {problem}") from None


class Verify(Protocol):
    def __call__(self, credential: bytes, data: bytes, signature: bytes, at_ms: int) -> str | None:
        """The name on the ticket of the author; None if the signature, or the ticket at that time, is not valid. The
        answer must be the same everywhere and at all times: it does not depend on revocation lists."""


class Signer(Protocol):
    """`security/post_signer.py`."""

    name: str
    credential: bytes

    def sign(self, data: bytes) -> bytes: ...


class SignedStatement(NamedTuple):
    """A statement with its proven author."""

    author: str
    statement: Statement


def signed(statement: Statement, signer: Signer) -> bytes:
    """The entry that is ordered."""
    data = statement.encode()
    if len(data) > STATEMENT_BYTES_MAX:
        raise ValueError(f"{len(data):,} bytes are too many for an entry: shorten the title, or name fewer bidders")
    signature = signer.sign(STATEMENT_PREFIX + sha256(data).digest())
    return b"".join((_HEAD.pack(VERSION, len(signer.credential)), signer.credential, signature, data))


def verified(entry: bytes, verify: Verify) -> SignedStatement | None:
    """None for an entry that is not a statement, or whose author is not proven: all members ignore it alike."""
    try:
        version, size = _HEAD.unpack_from(entry)
        start = _HEAD.size + size
        credential, signature = entry[_HEAD.size : start], entry[start : start + SIGNATURE_BYTES]
        data = entry[start + SIGNATURE_BYTES :]
        if version != VERSION or size > CREDENTIAL_BYTES_MAX or len(data) > STATEMENT_BYTES_MAX:
            return None
        statement = Statement.decode(data)
    except (ValueError, struct.error):
        return None
    author = verify(credential, STATEMENT_PREFIX + sha256(data).digest(), signature, statement.at_ms)
    return SignedStatement(author, statement) if author else None
