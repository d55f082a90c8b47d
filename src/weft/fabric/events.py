"""What a peer tells the outside: messages for the application, and events for whoever watches."""

import json
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from weft.fabric.state import State
from weft.wire import Contact, PeerId
from weft.wire.broadcast import Kind
from weft.wire.calls import Refusal
from weft.wire.files import File, decode_file


class Message(NamedTuple):
    """One message, as the application gets it."""

    author: PeerId
    sequence: int
    data: bytes
    hops: int
    kind: int = Kind.DATA

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
        return decode_file(self.data) if self.kind == Kind.FILE else None


class Batch:
    """Messages of one author that came together and follow each other."""

    __slots__ = ("author", "data", "first", "hops", "kind")

    def __init__(self, author: PeerId, first: int, data: Sequence[bytes], hops: int, kind: int = Kind.DATA) -> None:
        self.author = author
        self.first = first
        """Sequence of the first message."""
        self.data = data
        self.hops = hops
        self.kind = kind

    @classmethod
    def of(cls, message: Message) -> "Batch":
        """One message by itself."""
        return cls(message.author, message.sequence, (message.data,), message.hops, message.kind)

    @property
    def last(self) -> int:
        """Sequence of the last message."""
        return self.first + len(self.data) - 1

    def above(self, mark: int) -> "Batch":
        """Without what comes up to this sequence."""
        if mark < self.first:
            return self
        return Batch(self.author, mark + 1, self.data[mark + 1 - self.first :], self.hops, self.kind)

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Message]:
        for offset, data in enumerate(self.data):
            yield Message(self.author, self.first + offset, data, self.hops, self.kind)

    def __repr__(self) -> str:
        return f"Batch({self.author:016x}, {self.first}..{self.last}, {self.hops} hops)"


class Missed(NamedTuple):
    """These messages of this author cannot be had any more."""

    author: PeerId
    first: int
    last: int


class Why(Enum):
    """How a link ended."""

    LOST = "lost"
    SILENT = "silent"
    CUT = "cut"
    LEFT = "left"
    LEAVING = "leaving"
    PROTOCOL = "protocol error"
    SLOW = "too slow"
    BARRED = "no longer admitted"


class StateChanged(NamedTuple):
    state: State


class LinkUp(NamedTuple):
    neighbour: Contact


class LinkDown(NamedTuple):
    neighbour: Contact
    why: Why


class Barred(NamedTuple):
    """The channel was found, or one of its portals, but those who are there do not let us in."""

    refusal: Refusal
    text: str


class Note(NamedTuple):
    """A step of the protocol, for a trace that a person reads."""

    text: str


Event = StateChanged | LinkUp | LinkDown | Barred | Note
