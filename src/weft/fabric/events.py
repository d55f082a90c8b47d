"""What a peer tells the outside: messages for the application, and events for whoever watches."""

from enum import Enum
from typing import NamedTuple

from weft.fabric.state import State
from weft.wire import Contact, PeerId


class Message(NamedTuple):
    """One message, as the application gets it."""

    author: PeerId
    sequence: int
    data: bytes
    hops: int


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


class StateChanged(NamedTuple):
    state: State


class LinkUp(NamedTuple):
    neighbour: Contact


class LinkDown(NamedTuple):
    neighbour: Contact
    why: Why


class Note(NamedTuple):
    """A step of the protocol, for a trace that a person reads."""

    text: str


Event = StateChanged | LinkUp | LinkDown | Note
