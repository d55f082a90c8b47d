"""Messages to frames and back.

A frame consists of a length (of what follows it), a message number and the fields in the order in which the class
declares them. The codec of a class is built once from its annotations.
"""

import struct
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar, dataclass_transform, get_type_hints

from broadloom.wire.xdr import Pack, UnknownMessageError, Unpack, WireError, Xdr

HEAD = struct.Struct(">II")
"""Length of what follows, message number."""

LENGTH_BYTES = 4

Frame: TypeAlias = bytes | bytearray
"""A whole frame; a bytearray if it arrived in several reads. Nobody changes it once it is complete."""


class WireMessage:
    """Base class of messages; the `message` decorator completes them."""

    __slots__ = ()
    number: ClassVar[int]
    packs: ClassVar[tuple[tuple[str, Pack], ...]]
    unpacks: ClassVar[tuple[Unpack, ...]]


M = TypeVar("M", bound=type[WireMessage])
_KINDS: dict[int, type[WireMessage]] = {}


@dataclass_transform(frozen_default=True)
def message(number: int) -> Any:
    """Make a class a frozen dataclass and a message. Numbers are never reused."""

    def declare(kind: M) -> M:
        return declared(kind, number, _KINDS)  # type: ignore[no-any-return]

    return declare


def declared(kind: type, number: int, kinds: dict[int, Any]) -> Any:
    """Return the class as a frozen dataclass with its codec, registered in `kinds` under its number."""
    if number in kinds:
        raise TypeError(f"{kind.__name__} and {kinds[number].__name__} both have number {number}")
    made: Any = dataclass(frozen=True, slots=True)(kind)
    hints = get_type_hints(made, include_extras=True)
    fields = [(name, _xdr_of(made, name, hints)) for name in made.__dataclass_fields__]
    made.number = number
    made.packs = tuple((name, each.pack) for name, each in fields)
    made.unpacks = tuple(each.unpack for _, each in fields)
    kinds[number] = made
    return made


def _xdr_of(kind: type, name: str, hints: dict[str, Any]) -> Xdr:
    for each in getattr(hints[name], "__metadata__", ()):
        if isinstance(each, Xdr):
            return each
    raise TypeError(f"{kind.__name__}.{name} has no XDR type in its annotation")


def kinds() -> dict[int, type[WireMessage]]:
    """All messages by number, for documentation and tests."""
    return dict(_KINDS)


def encode(message: WireMessage) -> bytes:
    body = packed(message)
    return HEAD.pack(len(body) + LENGTH_BYTES, message.number) + body


def packed(message: WireMessage) -> bytes:
    """Encode the fields of a message."""
    out: list[bytes] = []
    for name, pack in message.packs:
        try:
            pack(getattr(message, name), out)
        except (struct.error, WireError) as problem:
            raise WireError(f"{type(message).__name__}.{name}: {problem}") from None
    return b"".join(out)


def unpacked(kind: type[WireMessage], data: Frame | memoryview, position: int) -> list[Any]:
    """Decode the fields of a message, which must fill the rest of `data` exactly."""
    values = []
    try:
        for unpack in kind.unpacks:
            value, position = unpack(data, position)
            values.append(value)
    except struct.error:
        raise WireError(f"{kind.__name__}: message truncated") from None
    except WireError as problem:
        raise WireError(f"{kind.__name__}: {problem}") from None
    if position != len(data):
        raise WireError(f"{kind.__name__}: {len(data) - position} extra bytes")
    return values


def number_of(frame: Frame | memoryview) -> int:
    if len(frame) < HEAD.size:
        raise WireError(f"frame of only {len(frame)} bytes")
    return int(HEAD.unpack_from(frame)[1])


def decode(frame: Frame | memoryview) -> WireMessage:
    """Decode a whole frame; raises `WireError` if it is malformed."""
    kind = _KINDS.get(number_of(frame))
    if kind is None:
        raise UnknownMessageError(f"message number {number_of(frame)} is unknown")
    values = unpacked(kind, frame, HEAD.size)
    if HEAD.unpack_from(frame)[0] != len(frame) - LENGTH_BYTES:
        raise WireError(f"{kind.__name__}: wrong frame length")
    return kind(*values)
