"""Messages of ordered conversations to bytes and back: XDR, as on links (`broadloom.wire`).

A message starts with two bytes, the version and the message number; its fields follow in declaration order.
"""

import struct
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

from broadloom.wire.codec import WireMessage, declared, packed, unpacked
from broadloom.wire.xdr import Buffer, UnknownMessageError, WireError, Xdr

LAYER = "Or"
VERSION = 1
HEADER_BYTES = 2


class OrderMessage(WireMessage):
    """Base class of the messages; see the `order_message` decorator."""

    __slots__ = ()
    conversation: int


M = TypeVar("M", bound=type[OrderMessage])
_KINDS: dict[int, type[OrderMessage]] = {}


@dataclass_transform(frozen_default=True)
def order_message(number: int) -> Any:
    """Declare a frozen dataclass as the message `number`. Numbers are never reused."""

    def declare(kind: M) -> M:
        return declared(kind, number, _KINDS)  # type: ignore[no-any-return]

    return declare


def message_types() -> dict[int, type[OrderMessage]]:
    """All messages by number."""
    return dict(_KINDS)


def encode(message: OrderMessage) -> bytes:
    return bytes((VERSION, message.number)) + packed(message)


def decode(data: bytes) -> OrderMessage:
    """Raises `WireError` if the bytes are not a valid message."""
    if len(data) < HEADER_BYTES:
        raise WireError("message truncated")
    if data[0] != VERSION:
        raise UnknownMessageError(f"version {data[0]}; this program supports version {VERSION}")
    kind = _KINDS.get(data[1])
    if kind is None:
        raise UnknownMessageError(f"unknown message number {data[1]}")
    return kind(*unpacked(kind, data, HEADER_BYTES))


def numbers(kind: Callable[..., Any], layout: str) -> Xdr:
    """A tuple type of numbers."""
    packer = struct.Struct(layout)

    def pack(value: tuple[int, ...], out: list[bytes]) -> None:
        out.append(packer.pack(*value))

    def unpack(buffer: Buffer, position: int) -> tuple[Any, int]:
        return kind(*packer.unpack_from(buffer, position)), position + packer.size

    return Xdr(pack, unpack)


def record(kind: Callable[..., Any], *fields: Xdr) -> Xdr:
    """A tuple type, field by field."""

    def pack(value: tuple[Any, ...], out: list[bytes]) -> None:
        for field, each in zip(fields, value, strict=True):
            field.pack(each, out)

    def unpack(buffer: Buffer, position: int) -> tuple[Any, int]:
        values = []
        for field in fields:
            value, position = field.unpack(buffer, position)
            values.append(value)
        return kind(*values), position

    return Xdr(pack, unpack)
