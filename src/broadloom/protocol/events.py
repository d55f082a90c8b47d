"""What a peer reports: messages for the application, and events about its state and links."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from broadloom.protocol.identity import Identity
from broadloom.protocol.owner.card import ChannelCard
from broadloom.protocol.roster.member import MemberEvent
from broadloom.wire import PeerId, PeerInfo
from broadloom.wire.exchange_messages import RejectReason
from broadloom.wire.file_payload import File, decode_file
from broadloom.wire.message_headers import Envelope, Headers
from broadloom.wire.payload_kind import PayloadKind

_NO_ENVELOPE = Envelope(Headers(), 0)


class PeerState(StrEnum):
    """In the order in which a peer goes through them."""

    DISCOVERING = "discovering"
    """Searches for the channel; no neighbor yet."""
    JOINING = "joining"
    """Has a neighbor and a starting position, but not yet all neighbors."""
    CONNECTED = "connected"
    """A full member; others may join through it. The loss of neighbors does not change this."""
    LEAVING = "leaving"
    """Has announced its departure and waits for frames in flight."""
    LEFT = "left"


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """One message, as delivered to the application."""

    author: PeerId
    sequence: int
    data: bytes
    hops: int
    kind: int = PayloadKind.DATA

    # One is created for each message that is read. The generated `__init__` of a frozen class takes twice as long.
    def __init__(self, author: PeerId, sequence: int, data: bytes, hops: int, kind: int = PayloadKind.DATA) -> None:
        _set_author(self, author)
        _set_sequence(self, sequence)
        _set_data(self, data)
        _set_hops(self, hops)
        _set_kind(self, kind)

    @property
    def text(self) -> str:
        """The data as UTF-8 text. Raises `ValueError` if it is not."""
        return self.data.decode()

    def json(self) -> Any:
        """The data parsed as JSON. Raises `ValueError` if it is not."""
        return json.loads(self.data)

    @property
    def file(self) -> File | None:
        """The file, if this message is one (`channel.broadcast_file`). Raises `ValueError` if its content is
        damaged."""
        return decode_file(self.data) if self.kind == PayloadKind.FILE else None

    @property
    def envelope(self) -> Envelope | None:
        """The headers and the time of sending; None if the message was sent without headers."""
        return None

    @property
    def topic(self) -> str | None:
        return self.envelope.headers.topic if self.envelope is not None else None

    @property
    def content_type(self) -> str | None:
        return self.envelope.headers.content_type if self.envelope is not None else None

    @property
    def headers(self) -> Mapping[str, str]:
        """The user headers that the author gave, by name."""
        return self.envelope.headers.user_headers if self.envelope is not None else {}

    @property
    def encodings(self) -> tuple[str, ...]:
        """What the rules of the author did to the data: `zlib`, `x25519`. Receivers undo it by themselves."""
        return self.envelope.headers.encodings if self.envelope is not None else ()

    @property
    def is_sealed(self) -> bool:
        """Whether the data is still encoded: this program has no key for it (`private_keys` of `connect`)."""
        return self.envelope is not None and bool(self.envelope.remaining)

    @property
    def forwarded_from(self) -> tuple[str, ...]:
        """Channels on which rules sent this message before."""
        return self.envelope.headers.forwarded_from if self.envelope is not None else ()

    @property
    def sent_at_ms(self) -> int | None:
        """When the author sent it, by its own clock, in milliseconds since 1970. Sent with headers only."""
        return self.envelope.sent_at_ms if self.envelope is not None else None


@dataclass(frozen=True, slots=True, init=False)
class MessageWithHeaders(Message):
    """A class of its own, so that messages without headers stay small and quick to create."""

    _envelope: Envelope = _NO_ENVELOPE

    def __init__(self, author: PeerId, sequence: int, data: bytes, hops: int, kind: int, envelope: Envelope) -> None:
        Message.__init__(self, author, sequence, data, hops, kind)
        object.__setattr__(self, "_envelope", envelope)

    @property
    def envelope(self) -> Envelope:
        return self._envelope


_set_author, _set_sequence, _set_data, _set_hops, _set_kind = (
    getattr(Message, name).__set__ for name in ("author", "sequence", "data", "hops", "kind")
)


def payload_bytes(data: object, remedy: str) -> bytes:
    """The payload of a message. Raises `TypeError` with the remedy if it is not bytes."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"a message is bytes, not {type(data).__name__}; use {remedy}")


class Batch:
    """Consecutive messages of one author that arrived together."""

    __slots__ = ("author", "data", "envelopes", "first_sequence", "hops", "kind")

    def __init__(
        self,
        author: PeerId,
        first_sequence: int,
        data: Sequence[bytes],
        hops: int,
        kind: int = PayloadKind.DATA,
        envelopes: Sequence[Envelope] | None = None,
    ) -> None:
        self.author = author
        self.first_sequence = first_sequence
        self.data = data
        self.hops = hops
        self.kind = kind
        self.envelopes = envelopes
        """One per message, if they have headers."""

    @classmethod
    def from_message(cls, message: Message) -> "Batch":
        envelopes = (message.envelope,) if message.envelope is not None else None
        return cls(message.author, message.sequence, (message.data,), message.hops, message.kind, envelopes)

    @property
    def last_sequence(self) -> int:
        return self.first_sequence + len(self.data) - 1

    def after(self, sequence: int) -> "Batch":
        """Return the messages after this sequence number."""
        if sequence < self.first_sequence:
            return self
        return self.part(sequence + 1 - self.first_sequence, len(self.data))

    def part(self, start: int, stop: int) -> "Batch":
        """Return the messages at these positions."""
        envelopes = self.envelopes[start:stop] if self.envelopes is not None else None
        return Batch(self.author, self.first_sequence + start, self.data[start:stop], self.hops, self.kind, envelopes)

    def message(self, index: int) -> Message:
        data, sequence = self.data[index], self.first_sequence + index
        if self.envelopes is None:
            return Message(self.author, sequence, data, self.hops, self.kind)
        return MessageWithHeaders(self.author, sequence, data, self.hops, self.kind, self.envelopes[index])

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Message]:
        if self.envelopes is not None:
            yield from map(self.message, range(len(self.data)))
            return
        for offset, data in enumerate(self.data):
            yield Message(self.author, self.first_sequence + offset, data, self.hops, self.kind)

    def __repr__(self) -> str:
        return f"Batch({self.author:016x}, {self.first_sequence}..{self.last_sequence}, {self.hops} hops)"


class Missed(NamedTuple):
    """These messages of this author are lost for this peer."""

    author: PeerId
    first_sequence: int
    last_sequence: int


class LinkDownReason(StrEnum):
    """Why a link ended."""

    CONNECTION_LOST = "connection_lost"
    HEARTBEAT_TIMEOUT = "heartbeat_timeout"
    REWIRED = "rewired"
    PEER_LEFT = "peer_left"
    LOCAL_LEAVE = "local_leave"
    PROTOCOL_ERROR = "protocol_error"
    TOO_SLOW = "too_slow"
    ACCESS_REVOKED = "access_revoked"
    QUOTA_EXCEEDED = "quota_exceeded"


class StateChanged(NamedTuple):
    state: PeerState


class LinkUp(NamedTuple):
    neighbor: PeerInfo
    identity: Identity | None = None
    """What the neighbor's certificate states; None without TLS."""


class LinkDown(NamedTuple):
    neighbor: PeerInfo
    reason: LinkDownReason


class Rejected(NamedTuple):
    """A peer of the channel, or on a bootstrap host, rejects this one: wrong key, expired or revoked ticket, other
    mode."""

    reason: RejectReason
    text: str


class Revoked(NamedTuple):
    """The owner has revoked tickets: their holders are no longer members."""

    serials: tuple[str, ...]
    """Those that are new in the list, in hex."""
    number: int
    """The number of the list."""


class CardChanged(NamedTuple):
    """The owner has published a new card of the channel."""

    card: ChannelCard


class ChannelClosed(NamedTuple):
    """The owner has closed the channel; this peer leaves it."""

    text: str
    """What the owner says about it."""


class QuotaExceeded(NamedTuple):
    """A member has sent far more than its quota. This peer has cut it off, and refuses it for a while."""

    peer_id: PeerId
    name: str
    """The name on its ticket; empty without tickets."""
    what: str
    """`messages`, `bytes` (both per second), `message_bytes` or `requests` (per second)."""
    measured: float
    allowed: float


class AuthorWarningReason(StrEnum):
    EQUIVOCATION = "equivocation"
    """The author has signed two different messages with one sequence number."""
    CLOCK = "clock"
    """Its clock and ours differ by more than five minutes."""


class AuthorWarning(NamedTuple):
    """Something is wrong with an author on a signed channel. Reported once per author and reason."""

    author: PeerId
    reason: AuthorWarningReason
    text: str


class TraceEvent(NamedTuple):
    """A step of the protocol as text, for debugging."""

    text: str


class LayerEvent(NamedTuple):
    """What a layer above the channel reports to the observer, and to nobody else. Kind and fields have the names of
    kinds and columns on the tape, which says what they mean (`record/schema.py`)."""

    kind: str
    author: PeerId | None = None
    sequence: int | None = None
    name: str | None = None
    reason: str | None = None
    status: str | None = None
    handler: PeerId | None = None
    scope: str | None = None
    file_name: str | None = None
    is_notice: bool | None = None
    is_repeatable: bool | None = None
    rule_number: int | None = None
    actions: str | None = None
    duration_ms: float | None = None
    owner: str | None = None
    size_bytes: int | None = None
    payload: bytes | None = None


OwnerEvent = CardChanged | ChannelClosed | QuotaExceeded | Revoked
Event = StateChanged | LinkUp | LinkDown | Rejected | OwnerEvent | AuthorWarning | MemberEvent | TraceEvent
