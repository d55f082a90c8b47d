"""What a peer tells the outside: messages for the application, and events for whoever watches."""

import json
from enum import Enum
from typing import Any, NamedTuple

from weft.fabric.state import State
from weft.wire import Contact, PeerId
from weft.wire.calls import Refusal


class Message(NamedTuple):
    """One message, as the application gets it."""

    author: PeerId
    sequence: int
    data: bytes
    hops: int

    @property
    def text(self) -> str:
        """The data as UTF-8 text; ValueError if it is none."""
        return self.data.decode()

    def json(self) -> Any:
        """The data as JSON; ValueError if it is none."""
        return json.loads(self.data)


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
