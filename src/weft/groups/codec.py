"""Group messages to bytes and back: XDR, as on the links (`weft.wire`), behind a mark of our own.

A group message is the payload of a channel broadcast. It begins with four bytes: `G` `w`, the version and the number of
its kind; its fields follow in the order in which the class declares them. Payloads that begin otherwise are no business
of the groups. The numbers are apart from those of the links: a group message is nothing that a link must understand.
"""

from typing import Any, TypeVar, dataclass_transform

from weft.wire.codec import Message, declared, packed, unpacked
from weft.wire.errors import UnknownMessage, WireError

MARK = b"Gw"
VERSION = 1
HEAD_BYTES = 4


class Note(Message):
    """One message between the groups of two programs; subclasses are made by the `note` decorator."""

    __slots__ = ()


N = TypeVar("N", bound=type[Note])
_KINDS: dict[int, type[Note]] = {}


@dataclass_transform(frozen_default=True)
def note(number: int) -> Any:
    """Make a frozen dataclass a group message with a number that is never used for another one."""

    def declare(kind: N) -> N:
        return declared(kind, number, _KINDS)  # type: ignore[no-any-return]

    return declare


def kinds() -> dict[int, type[Note]]:
    """All group messages by number, for documentation and tests."""
    return dict(_KINDS)


def is_ours(data: bytes) -> bool:
    """Whether a payload claims to be a group message."""
    return data[:2] == MARK


def encode(made: Note) -> bytes:
    return MARK + bytes((VERSION, made.number)) + packed(made)


def decode(data: bytes) -> Note:
    """The group message of a payload, or WireError."""
    if len(data) < HEAD_BYTES or not is_ours(data):
        raise WireError("no group message")
    if data[2] != VERSION:
        raise UnknownMessage(f"a group message of version {data[2]}; this program knows version {VERSION}")
    kind = _KINDS.get(data[3])
    if kind is None:
        raise UnknownMessage(f"group message number {data[3]} is not known here")
    return kind(*unpacked(kind, data, HEAD_BYTES))
