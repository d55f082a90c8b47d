"""Group messages to bytes and back: XDR, as on the links (`weft.wire`), behind a mark of our own.

A group message is the payload of a channel broadcast. It begins with four bytes: `G` `w`, the version and the number of
its kind; its fields follow in the order in which the class declares them. Payloads that begin otherwise are no business
of the groups. The numbers are apart from those of the links: a group message is nothing that a link must understand.
"""

import struct
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform, get_type_hints

from weft.wire.errors import UnknownMessage, WireError
from weft.wire.xdr import Pack, Unpack, Xdr

MARK = b"Gw"
VERSION = 1
HEAD_BYTES = 4


class Note:
    """One message between the groups of two programs; subclasses are made by the `note` decorator."""

    __slots__ = ()
    number: ClassVar[int]
    packs: ClassVar[tuple[tuple[str, Pack], ...]]
    unpacks: ClassVar[tuple[Unpack, ...]]


N = TypeVar("N", bound=type[Note])
_KINDS: dict[int, type[Note]] = {}


@dataclass_transform(frozen_default=True)
def note(number: int) -> Any:
    """Make a frozen dataclass a group message with a number that is never used for another one."""

    def declare(kind: N) -> N:
        if number in _KINDS:
            raise TypeError(f"{kind.__name__} and {_KINDS[number].__name__} both have number {number}")
        made: Any = dataclass(frozen=True, slots=True)(kind)
        hints = get_type_hints(made, include_extras=True)
        fields = [(name, _xdr_of(made, name, hints[name])) for name in made.__dataclass_fields__]
        made.number = number
        made.packs = tuple((name, each.pack) for name, each in fields)
        made.unpacks = tuple(each.unpack for _, each in fields)
        _KINDS[number] = made
        return made  # type: ignore[no-any-return]

    return declare


def _xdr_of(kind: type[Note], name: str, hint: Any) -> Xdr:
    for each in getattr(hint, "__metadata__", ()):
        if isinstance(each, Xdr):
            return each
    raise TypeError(f"{kind.__name__}.{name} does not say how it is written")


def kinds() -> dict[int, type[Note]]:
    """All group messages by number, for documentation and tests."""
    return dict(_KINDS)


def is_ours(data: bytes) -> bool:
    """Whether a payload claims to be a group message."""
    return data[:2] == MARK


def encode(made: Note) -> bytes:
    out: list[bytes] = [MARK + bytes((VERSION, made.number))]
    for name, pack in made.packs:
        try:
            pack(getattr(made, name), out)
        except (struct.error, WireError) as problem:
            raise WireError(f"{type(made).__name__}.{name}: {problem}") from None
    return b"".join(out)


def decode(data: bytes) -> Note:
    """The group message of a payload, or WireError."""
    if len(data) < HEAD_BYTES or not is_ours(data):
        raise WireError("no group message")
    if data[2] != VERSION:
        raise UnknownMessage(f"a group message of version {data[2]}; this program knows version {VERSION}")
    kind = _KINDS.get(data[3])
    if kind is None:
        raise UnknownMessage(f"group message number {data[3]} is not known here")
    position = HEAD_BYTES
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
    return kind(*values)
