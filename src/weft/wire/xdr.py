"""The data types of XDR (RFC 4506) that our messages use, each as a pair of functions on bytes.

`pack(value, out)` appends bytes to a list; `unpack(buffer, position)` returns the value and the position behind it.
Whatever does not fit is a WireError, never a crash: the bytes come from strangers.
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

from weft.wire.errors import WireError
from weft.wire.types import Address, BeaconMark, Contact, Have, Standing

Buffer = bytes | memoryview
Pack = Callable[[Any, list[bytes]], None]
Unpack = Callable[[Buffer, int], tuple[Any, int]]


class Xdr(NamedTuple):
    """One data type: how it is written and read."""

    pack: Pack
    unpack: Unpack


_UINT = struct.Struct(">I")
_HYPER = struct.Struct(">Q")
_HAVE = struct.Struct(">QQQQ")
_STANDING = struct.Struct(">QQQQ")
_BEACON = struct.Struct(">QQ")
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")

HOST_BYTES_MAX = 255
PORT_MAX = 65535
TEXT_BYTES_MAX = 1024
CONTACTS_CACHED = 16384


def _fixed(layout: struct.Struct) -> Xdr:
    def pack(value: int, out: list[bytes]) -> None:
        out.append(layout.pack(value))

    def unpack(buffer: Buffer, position: int) -> tuple[int, int]:
        return layout.unpack_from(buffer, position)[0], position + layout.size

    return Xdr(pack, unpack)


UINT = _fixed(_UINT)
HYPER = _fixed(_HYPER)


def _pack_bool(value: bool, out: list[bytes]) -> None:
    out.append(b"\0\0\0\1" if value else b"\0\0\0\0")


def _unpack_bool(buffer: Buffer, position: int) -> tuple[bool, int]:
    (value,) = _UINT.unpack_from(buffer, position)
    if value > 1:
        raise WireError(f"{value} is neither true nor false")
    return value == 1, position + 4


BOOL = Xdr(_pack_bool, _unpack_bool)


def pack_opaque(value: Buffer, out: list[bytes]) -> None:
    """Variable-length bytes, padded with zeros to a multiple of four."""
    out.append(_UINT.pack(len(value)))
    out.append(bytes(value))
    out.append(_PADDING[len(value) & 3])


def unpack_opaque(buffer: Buffer, position: int, most: int) -> tuple[bytes, int]:
    (length,) = _UINT.unpack_from(buffer, position)
    end = position + 4 + length
    if length > most or end > len(buffer):
        raise WireError(f"{length} bytes announced, at most {min(most, len(buffer) - position - 4)} possible")
    after = end + (-length & 3)
    if after != end and bytes(buffer[end:after]) != _PADDING[length & 3]:
        raise WireError("padding is missing or not zero")
    return bytes(buffer[position + 4 : end]), after


def opaque(most: int) -> Xdr:
    """Bytes with their length in front, at most so many."""

    def pack(value: bytes, out: list[bytes]) -> None:
        if len(value) > most:
            raise WireError(f"{len(value)} bytes where at most {most} are possible")
        pack_opaque(value, out)

    return Xdr(pack, lambda buffer, position: unpack_opaque(buffer, position, most))


def fixed_opaque(size: int) -> Xdr:
    if size % 4:
        raise ValueError("only sizes that need no padding are used")

    def pack(value: bytes, out: list[bytes]) -> None:
        if len(value) != size:
            raise WireError(f"{len(value)} bytes where {size} must stand")
        out.append(value)

    def unpack(buffer: Buffer, position: int) -> tuple[bytes, int]:
        if position + size > len(buffer):
            raise WireError("the message ends too early")
        return bytes(buffer[position : position + size]), position + size

    return Xdr(pack, unpack)


def _pack_text(value: str, out: list[bytes], most: int) -> None:
    """UTF-8. A NUL is refused: a reader in C would lose what is behind it, and no host name may have one."""
    try:
        encoded = value.encode()
    except UnicodeEncodeError as problem:
        raise WireError(f"not UTF-8: {problem}") from None
    if len(encoded) > most:
        raise WireError(f"a text of {len(encoded)} bytes where at most {most} may stand")
    if b"\0" in encoded:
        raise WireError("a text with a NUL in it")
    pack_opaque(encoded, out)


def _unpack_text(buffer: Buffer, position: int, most: int) -> tuple[str, int]:
    encoded, position = unpack_opaque(buffer, position, most)
    if b"\0" in encoded:
        raise WireError("a text with a NUL in it")
    try:
        return encoded.decode(), position
    except UnicodeDecodeError as problem:
        raise WireError(f"not UTF-8: {problem}") from None


def string(most: int = TEXT_BYTES_MAX) -> Xdr:
    def pack(value: str, out: list[bytes]) -> None:
        _pack_text(value, out, most)

    return Xdr(pack, lambda buffer, position: _unpack_text(buffer, position, most))


def enum(kind: type[IntEnum]) -> Xdr:
    def pack(value: IntEnum, out: list[bytes]) -> None:
        try:
            out.append(_UINT.pack(kind(value)))
        except ValueError:
            raise WireError(f"{value} is no {kind.__name__}") from None

    def unpack(buffer: Buffer, position: int) -> tuple[IntEnum, int]:
        (value,) = _UINT.unpack_from(buffer, position)
        try:
            return kind(value), position + 4
        except ValueError:
            raise WireError(f"{value} is no {kind.__name__}") from None

    return Xdr(pack, unpack)


def array(element: Xdr, most: int) -> Xdr:
    """A counted list. A peer that sends more than `most` is refused before anything is built from it."""

    def pack(values: tuple[Any, ...], out: list[bytes]) -> None:
        if len(values) > most:
            raise WireError(f"{len(values)} elements where at most {most} may stand")
        out.append(_UINT.pack(len(values)))
        for value in values:
            element.pack(value, out)

    def unpack(buffer: Buffer, position: int) -> tuple[tuple[Any, ...], int]:
        (count,) = _UINT.unpack_from(buffer, position)
        if count > most:
            raise WireError(f"{count} elements announced where at most {most} may stand")
        position += 4
        values = []
        for _ in range(count):
            value, position = element.unpack(buffer, position)
            values.append(value)
        return tuple(values), position

    return Xdr(pack, unpack)


def optional(element: Xdr) -> Xdr:
    """XDR's optional data: a flag, then the value if the flag is set."""

    def pack(value: Any, out: list[bytes]) -> None:
        _pack_bool(value is not None, out)
        if value is not None:
            element.pack(value, out)

    def unpack(buffer: Buffer, position: int) -> tuple[Any, int]:
        there, position = _unpack_bool(buffer, position)
        return element.unpack(buffer, position) if there else (None, position)

    return Xdr(pack, unpack)


def _pack_address(address: Address, out: list[bytes]) -> None:
    if not 0 <= address.port <= PORT_MAX:
        raise WireError(f"{address.port} is no port")
    _pack_text(address.host, out, HOST_BYTES_MAX)
    out.append(_UINT.pack(address.port))


def _unpack_address(buffer: Buffer, position: int) -> tuple[Address, int]:
    host, position = _unpack_text(buffer, position, HOST_BYTES_MAX)
    (port,) = _UINT.unpack_from(buffer, position)
    if port > PORT_MAX:
        raise WireError(f"{port} is no port")
    return Address(host, port), position + 4


ADDRESS = Xdr(_pack_address, _unpack_address)


@lru_cache(CONTACTS_CACHED)
def _contact_bytes(contact: Contact) -> bytes:
    out = [_HYPER.pack(contact.peer)]
    _pack_address(contact.address, out)
    return b"".join(out)


@lru_cache(CONTACTS_CACHED)
def _contact_of(encoded: bytes) -> Contact:
    """The same contact is told over and over, so it is read once. `encoded` is one whole contact."""
    (peer,) = _HYPER.unpack_from(encoded)
    address, _ = _unpack_address(encoded, _HYPER.size)
    return Contact(peer, address)


def _pack_contact(contact: Contact, out: list[bytes]) -> None:
    out.append(_contact_bytes(contact))


def _unpack_contact(buffer: Buffer, position: int) -> tuple[Contact, int]:
    (host_bytes,) = _UINT.unpack_from(buffer, position + _HYPER.size)
    end = position + _HYPER.size + 4 + host_bytes + (-host_bytes & 3) + 4
    if host_bytes > HOST_BYTES_MAX or end > len(buffer):
        raise WireError("a contact that ends too early")
    return _contact_of(bytes(buffer[position:end])), end


CONTACT = Xdr(_pack_contact, _unpack_contact)


def _tuple_of(layout: struct.Struct, kind: type[Have] | type[Standing] | type[BeaconMark]) -> Xdr:
    def pack(value: tuple[int, ...], out: list[bytes]) -> None:
        out.append(layout.pack(*value))

    def unpack(buffer: Buffer, position: int) -> tuple[Any, int]:
        return kind(*layout.unpack_from(buffer, position)), position + layout.size

    return Xdr(pack, unpack)


HAVE = _tuple_of(_HAVE, Have)
STANDING = _tuple_of(_STANDING, Standing)
BEACON_MARK = _tuple_of(_BEACON, BeaconMark)
