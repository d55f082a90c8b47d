"""Group messages to bytes and back: XDR, as on links (`broadloom.wire`), behind a header of their own.

A group message is the payload of a channel broadcast. It starts with four bytes: `B`, `G`, the version and the message
number; the fields follow in declaration order. The numbers are separate from those of link messages: links do not look
into payloads.
"""

from typing import Any, TypeVar, dataclass_transform

from broadloom.wire.codec import WireMessage, declared, packed, unpacked
from broadloom.wire.xdr import UnknownMessageError, WireError

LAYER = "Gr"
"""Group messages have a layer of their own on the channel, so that they do not disturb other readers."""
MAGIC = b"BG"
VERSION = 1
HEADER_BYTES = 4


class GroupWireMessage(WireMessage):
    """Base class of all group messages; see the `group_message` decorator."""

    __slots__ = ()


N = TypeVar("N", bound=type[GroupWireMessage])
_MESSAGE_TYPES: dict[int, type[GroupWireMessage]] = {}


@dataclass_transform(frozen_default=True)
def group_message(number: int) -> Any:
    """Declare a frozen dataclass as the group message `number`. Numbers are never reused."""

    def declare(kind: N) -> N:
        return declared(kind, number, _MESSAGE_TYPES)  # type: ignore[no-any-return]

    return declare


def message_types() -> dict[int, type[GroupWireMessage]]:
    """All group messages by number."""
    return dict(_MESSAGE_TYPES)


def is_group_message(data: bytes) -> bool:
    return data[:2] == MAGIC


def encode(message: GroupWireMessage) -> bytes:
    return MAGIC + bytes((VERSION, message.number)) + packed(message)


def decode(data: bytes) -> GroupWireMessage:
    """Decode a payload. Raises `WireError` if it is not a valid group message."""
    if len(data) < HEADER_BYTES or not is_group_message(data):
        raise WireError("not a group message")
    if data[2] != VERSION:
        raise UnknownMessageError(f"group message of version {data[2]}; this program supports version {VERSION}")
    kind = _MESSAGE_TYPES.get(data[3])
    if kind is None:
        raise UnknownMessageError(f"unknown group message number {data[3]}")
    return kind(*unpacked(kind, data, HEADER_BYTES))
