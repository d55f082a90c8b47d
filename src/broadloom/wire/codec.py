"""Messages to frames and back.

A frame is a length (of all that follows it), a message number and the message's fields in the order in which the
class declares them. The codec is built once per class from the annotations, so a field is written down in one place.
"""

import struct
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform, get_type_hints

from broadloom.wire.xdr import Pack, UnknownMessageError, Unpack, WireError, Xdr

HEAD = struct.Struct(">II")
"""Length of what follows, message number."""

LENGTH_BYTES = 4


class WireMessage:
    """One message of the protocol; subclasses are made by the `message` decorator."""

    __slots__ = ()
    number: ClassVar[int]
    packs: ClassVar[tuple[tuple[str, Pack], ...]]
    unpacks: ClassVar[tuple[Unpack, ...]]


M = TypeVar("M", bound=type[WireMessage])
_KINDS: dict[int, type[WireMessage]] = {}


@dataclass_transform(frozen_default=True)
def message(number: int) -> Any:
    """Make a frozen dataclass a message with a number that is never used for another one."""

    def declare(kind: M) -> M:
        return declared(kind, number, _KINDS)  # type: ignore[no-any-return]

    return declare


def declared(kind: type, number: int, kinds: dict[int, Any]) -> Any:
    """The class as a frozen dataclass that knows how its fields are written, entered among its kinds by its number."""
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
    raise TypeError(f"{kind.__name__}.{name} does not say how it is written")


def kinds() -> dict[int, type[WireMessage]]:
    """All messages by number, for documentation and tests."""
    return dict(_KINDS)


def encode(message: WireMessage) -> bytes:
    """The frame of a message."""
    body = packed(message)
    return HEAD.pack(len(body) + LENGTH_BYTES, message.number) + body


def packed(message: WireMessage) -> bytes:
    """The fields of a message, in their order."""
    out: list[bytes] = []
    for name, pack in message.packs:
        try:
            pack(getattr(message, name), out)
        except (struct.error, WireError) as problem:
            raise WireError(f"{type(message).__name__}.{name}: {problem}") from None
    return b"".join(out)


def unpacked(kind: type[WireMessage], data: bytes | memoryview, position: int) -> list[Any]:
    """The fields of a message from there to the end, neither more nor less; or WireError."""
    values = []
    try:
        for unpack in kind.unpacks:
            value, position = unpack(data, position)
            values.append(value)
    except struct.error:
        raise WireError(f"{kind.__name__}: the message ends too early") from None
    except WireError as problem:
        raise WireError(f"{kind.__name__}: {problem}") from None
    if position != len(data):
        raise WireError(f"{kind.__name__}: {len(data) - position} bytes too many")
    return values


def number_of(frame: bytes | memoryview) -> int:
    """The message number of a whole frame."""
    if len(frame) < HEAD.size:
        raise WireError(f"a frame of {len(frame)} bytes")
    return int(HEAD.unpack_from(frame)[1])


def decode(frame: bytes | memoryview) -> WireMessage:
    """The message of a whole frame, or WireError."""
    kind = _KINDS.get(number_of(frame))
    if kind is None:
        raise UnknownMessageError(f"message number {number_of(frame)} is not known here")
    values = unpacked(kind, frame, HEAD.size)
    if HEAD.unpack_from(frame)[0] != len(frame) - LENGTH_BYTES:
        raise WireError(f"{kind.__name__}: the length of the frame is not what it says")
    return kind(*values)
