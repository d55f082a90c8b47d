"""Group messages to bytes and back: XDR, as on the links (`broadloom.wire`), behind a mark of our own.

A group message is the payload of a channel broadcast. It begins with four bytes: `G` `w`, the version and the number of
its kind; its fields follow in the order in which the class declares them. Payloads that begin otherwise are no business
of the groups. The numbers are apart from those of the links: a group message is nothing that a link must understand.
"""

from typing import Any, TypeVar, dataclass_transform

from broadloom.wire.codec import WireMessage, declared, packed, unpacked
from broadloom.wire.xdr import UnknownMessageError, WireError

MAGIC = b"Gw"
VERSION = 1
HEADER_BYTES = 4


class GroupWireMessage(WireMessage):
    """One message between the groups of two programs; subclasses are made by the `note` decorator."""

    __slots__ = ()


N = TypeVar("N", bound=type[GroupWireMessage])
_MESSAGE_TYPES: dict[int, type[GroupWireMessage]] = {}


@dataclass_transform(frozen_default=True)
def group_message(number: int) -> Any:
    """Make a frozen dataclass a group message with a number that is never used for another one."""

    def declare(kind: N) -> N:
        return declared(kind, number, _MESSAGE_TYPES)  # type: ignore[no-any-return]

    return declare


def message_types() -> dict[int, type[GroupWireMessage]]:
    """All group messages by number, for documentation and tests."""
    return dict(_MESSAGE_TYPES)


def is_group_message(data: bytes) -> bool:
    """Whether a payload claims to be a group message."""
    return data[:2] == MAGIC


def encode(message: GroupWireMessage) -> bytes:
    return MAGIC + bytes((VERSION, message.number)) + packed(message)


def decode(data: bytes) -> GroupWireMessage:
    """The group message of a payload, or WireError."""
    if len(data) < HEADER_BYTES or not is_group_message(data):
        raise WireError("no group message")
    if data[2] != VERSION:
        raise UnknownMessageError(f"a group message of version {data[2]}; this program knows version {VERSION}")
    kind = _MESSAGE_TYPES.get(data[3])
    if kind is None:
        raise UnknownMessageError(f"group message number {data[3]} is not known here")
    return kind(*unpacked(kind, data, HEADER_BYTES))
