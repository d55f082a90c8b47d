"""What applications see: values, changes, letters and events."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from broadloom.mailboxes.classes import MailboxClass
from broadloom.wire import PeerId


class _Data:
    __slots__ = ()
    data: bytes

    @property
    def text(self) -> str:
        """The data as UTF-8 text. Raises `ValueError` if it is not."""
        return self.data.decode()

    def json(self) -> Any:
        """The data parsed as JSON. Raises `ValueError` if it is not."""
        return json.loads(self.data)


@dataclass(frozen=True, slots=True)
class Value(_Data):
    """The value of a mailbox at one revision."""

    name: str
    owner: str
    revision: int
    data: bytes
    at_ms: int
    """When it was put, by the clock of its writer, in milliseconds since 1970."""
    writer: PeerId
    """The program that put it: the owner, as one of its connections."""


class ChangeKind(StrEnum):
    PRESENT = "present"
    """The value was there when watching began."""
    PUT = "put"
    """There is a new value."""
    GONE = "gone"
    """There is no value any more."""


class GoneReason(StrEnum):
    UNBOUND = "unbound"
    INVALIDATED = "invalidated"
    EXPIRED = "expired"
    """Its `ttl_s` has passed."""
    OWNER_GONE = "owner_gone"
    """It was bound to the presence of its owner, which left or was lost."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a watcher gets."""

    kind: ChangeKind
    value: Value
    """The new value; the last one if it is gone."""
    reason: GoneReason | None = None


@dataclass(frozen=True, slots=True)
class MailboxInfo:
    """A mailbox of any member."""

    name: str
    owner: str
    mailbox_class: MailboxClass
    writer: PeerId
    revision: int
    is_valid: bool
    while_here: bool


@dataclass(frozen=True, slots=True)
class Letter(_Data):
    """A letter in a mailbox."""

    name: str
    """The mailbox that it was posted to."""
    sender: PeerId
    reply_to: str
    """The mailbox of the sender that it was posted from; empty if none."""
    data: bytes
    priority: int = 0
    is_ring: bool = False
    """It has no data: it only calls attention (`ring`)."""


class Ack(StrEnum):
    """What the sender of a letter waits for, or is notified of."""

    NONE = "none"
    """Nothing: the letter is in the queue."""
    EACH = "each"
    """`then` is called for each letter that was transmitted."""
    BATCH = "batch"
    """`then` is called once for all letters that were transmitted together."""
    ARRIVAL = "arrival"
    """`post` returns when the letter is in the mailbox."""


class Posted(NamedTuple):
    """A letter of ours that was transmitted, or could not be."""

    peer_id: PeerId
    name: str
    data: bytes
    error: Exception | None = None


class Overruled(NamedTuple):
    """Another program wrote to a mailbox of ours under the same owner name, and its value is the one that all members
    keep: after a partition, or because two programs used one name at the same time."""

    name: str
    value: Value | None
    """The value that counts, if there is one. Its writer is the other program."""
    lost_revision: int
    """The revision of ours that was overruled."""


class Undelivered(NamedTuple):
    """A letter that nobody waits for did not arrive."""

    posted: Posted


class LimitReached(NamedTuple):
    """A limit was reached, and mailboxes of this owner are ignored. Reported once per owner and limit."""

    owner: str
    limit: str


class Synced(NamedTuple):
    """The mailboxes of the channel are known here."""


MailboxEvent = Overruled | Undelivered | LimitReached | Synced
