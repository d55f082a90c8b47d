"""What a peer tells the outside: messages for the application, and events for whoever watches."""

import json
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from broadloom.wire import PeerId, PeerInfo
from broadloom.wire.broadcast_frame import PayloadKind
from broadloom.wire.exchange_messages import RejectReason
from broadloom.wire.file_payload import File, decode_file

# The states of a peer, in the order in which it passes through them.


class PeerState(Enum):
    DISCOVERING = "discovering"
    """Looking for the channel; no neighbour yet."""
    JOINING = "joining"
    """Has a neighbour and a starting point in the stream of messages, not yet all neighbours."""
    CONNECTED = "connected"
    """A full member; newcomers may join through it. It stays one through losses of neighbours."""
    LEAVING = "leaving"
    """Has told its neighbours and waits for what is under way."""
    LEFT = "left"


class Message(NamedTuple):
    """One message, as the application gets it."""

    author: PeerId
    sequence: int
    data: bytes
    hops: int
    kind: int = PayloadKind.DATA

    @property
    def text(self) -> str:
        """The data as UTF-8 text; ValueError if it is none."""
        return self.data.decode()

    def json(self) -> Any:
        """The data as JSON; ValueError if it is none."""
        return json.loads(self.data)

    @property
    def file(self) -> File | None:
        """The file, if this message is one (`channel.send_file`); ValueError if its content is not what was sent."""
        return decode_file(self.data) if self.kind == PayloadKind.FILE else None


class Batch:
    """Messages of one author that came together and follow each other."""

    __slots__ = ("author", "data", "first_sequence", "hops", "kind")

    def __init__(
        self, author: PeerId, first_sequence: int, data: Sequence[bytes], hops: int, kind: int = PayloadKind.DATA
    ) -> None:
        self.author = author
        self.first_sequence = first_sequence
        """Sequence of the first message."""
        self.data = data
        self.hops = hops
        self.kind = kind

    @classmethod
    def from_message(cls, message: Message) -> "Batch":
        """One message by itself."""
        return cls(message.author, message.sequence, (message.data,), message.hops, message.kind)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last message."""
        return self.first_sequence + len(self.data) - 1

    def after(self, sequence: int) -> "Batch":
        """Without what comes up to this sequence."""
        if sequence < self.first_sequence:
            return self
        return Batch(self.author, sequence + 1, self.data[sequence + 1 - self.first_sequence :], self.hops, self.kind)

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Message]:
        for offset, data in enumerate(self.data):
            yield Message(self.author, self.first_sequence + offset, data, self.hops, self.kind)

    def __repr__(self) -> str:
        return f"Batch({self.author:016x}, {self.first_sequence}..{self.last_sequence}, {self.hops} hops)"


class Missed(NamedTuple):
    """These messages of this author cannot be had any more."""

    author: PeerId
    first_sequence: int
    last_sequence: int


class LinkDownReason(Enum):
    """How a link ended."""

    CONNECTION_LOST = "connection_lost"
    HEARTBEAT_TIMEOUT = "heartbeat_timeout"
    REWIRED = "rewired"
    PEER_LEFT = "peer_left"
    LOCAL_LEAVE = "local_leave"
    PROTOCOL_ERROR = "protocol_error"
    TOO_SLOW = "too_slow"
    ACCESS_REVOKED = "access_revoked"


class StateChanged(NamedTuple):
    state: PeerState


class LinkUp(NamedTuple):
    neighbor: PeerInfo


class LinkDown(NamedTuple):
    neighbor: PeerInfo
    reason: LinkDownReason


class Rejected(NamedTuple):
    """The channel was found, or one of its portals, but those who are there do not let us in."""

    reason: RejectReason
    text: str


class TraceEvent(NamedTuple):
    """A step of the protocol, for a trace that a person reads."""

    text: str


Event = StateChanged | LinkUp | LinkDown | Rejected | TraceEvent
