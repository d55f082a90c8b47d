"""The data types of XDR (RFC 4506) used by the messages, each as a pair of functions.

`pack(value, out)` appends bytes to a list; `unpack(buffer, position)` returns the value and the next position. The
bytes come from untrusted peers, so any malformed value raises `WireError` (or `struct.error` if the buffer is too
short).
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

from broadloom.wire.types import Address, AuthorState, BeaconId, PeerInfo, RecordVersion, TreePosition


class WireError(ValueError):
    """The bytes are not a valid message; the connection is unusable."""


class UnknownMessageError(WireError):
    """A message number of a later version. A link can skip the frame, because its length is known."""


Buffer = bytes | bytearray | memoryview
Pack = Callable[[Any, list[bytes]], None]
Unpack = Callable[[Buffer, int], tuple[Any, int]]


class Xdr(NamedTuple):
    pack: Pack
    unpack: Unpack


_UINT = struct.Struct(">I")
_HYPER = struct.Struct(">Q")
PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")
"""By the size of what is padded, modulo 4."""

HOST_BYTES_MAX = 255
PORT_MAX = 65535
TEXT_BYTES_MAX = 1024
PEER_INFOS_CACHED = 16384


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
        raise WireError(f"invalid boolean: {value}")
    return value == 1, position + 4


BOOL = Xdr(_pack_bool, _unpack_bool)


def pack_opaque(value: Buffer, out: list[bytes]) -> None:
    """Variable-length bytes, padded with zeros to a multiple of four."""
    out.append(_UINT.pack(len(value)))
    out.append(bytes(value))
    out.append(PADDING[len(value) & 3])


def unpack_opaque(buffer: Buffer, position: int, limit: int) -> tuple[bytes, int]:
    (length,) = _UINT.unpack_from(buffer, position)
    end = position + 4 + length
    if length > limit or end > len(buffer):
        raise WireError(f"length {length} exceeds {min(limit, len(buffer) - position - 4)}")
    after = end + (-length & 3)
    if after != end and bytes(buffer[end:after]) != PADDING[length & 3]:
        raise WireError("padding is missing or nonzero")
    return bytes(buffer[position + 4 : end]), after


def opaque(limit: int) -> Xdr:
    def pack(value: bytes, out: list[bytes]) -> None:
        if len(value) > limit:
            raise WireError(f"{len(value)} bytes, at most {limit} are allowed")
        pack_opaque(value, out)

    return Xdr(pack, lambda buffer, position: unpack_opaque(buffer, position, limit))


def fixed_opaque(size: int) -> Xdr:
    if size % 4:
        raise ValueError("size must be a multiple of 4")

    def pack(value: bytes, out: list[bytes]) -> None:
        if len(value) != size:
            raise WireError(f"{len(value)} bytes instead of {size}")
        out.append(value)

    def unpack(buffer: Buffer, position: int) -> tuple[bytes, int]:
        if position + size > len(buffer):
            raise WireError("message truncated")
        return bytes(buffer[position : position + size]), position + size

    return Xdr(pack, unpack)


def _pack_text(value: str, out: list[bytes], limit: int) -> None:
    """UTF-8 without NUL characters, which would truncate the text for readers in C."""
    try:
        encoded = value.encode()
    except UnicodeEncodeError as problem:
        raise WireError(f"not UTF-8: {problem}") from None
    if len(encoded) > limit:
        raise WireError(f"text of {len(encoded)} bytes, at most {limit} are allowed")
    if b"\0" in encoded:
        raise WireError("text contains a NUL character")
    pack_opaque(encoded, out)


def _unpack_text(buffer: Buffer, position: int, limit: int) -> tuple[str, int]:
    encoded, position = unpack_opaque(buffer, position, limit)
    if b"\0" in encoded:
        raise WireError("text contains a NUL character")
    try:
        return encoded.decode(), position
    except UnicodeDecodeError as problem:
        raise WireError(f"not UTF-8: {problem}") from None


def string(limit: int = TEXT_BYTES_MAX) -> Xdr:
    def pack(value: str, out: list[bytes]) -> None:
        _pack_text(value, out, limit)

    return Xdr(pack, lambda buffer, position: _unpack_text(buffer, position, limit))


def enum(kind: type[IntEnum]) -> Xdr:
    def pack(value: IntEnum, out: list[bytes]) -> None:
        try:
            out.append(_UINT.pack(kind(value)))
        except ValueError:
            raise WireError(f"{value} is not a {kind.__name__}") from None

    def unpack(buffer: Buffer, position: int) -> tuple[IntEnum, int]:
        (value,) = _UINT.unpack_from(buffer, position)
        try:
            return kind(value), position + 4
        except ValueError:
            raise WireError(f"{value} is not a {kind.__name__}") from None

    return Xdr(pack, unpack)


def array(element: Xdr, limit: int) -> Xdr:
    """A variable-length array. A count beyond `limit` is rejected before any element is decoded."""

    def pack(values: tuple[Any, ...], out: list[bytes]) -> None:
        if len(values) > limit:
            raise WireError(f"{len(values)} elements, at most {limit} are allowed")
        out.append(_UINT.pack(len(values)))
        for value in values:
            element.pack(value, out)

    def unpack(buffer: Buffer, position: int) -> tuple[tuple[Any, ...], int]:
        (count,) = _UINT.unpack_from(buffer, position)
        if count > limit:
            raise WireError(f"{count} elements, at most {limit} are allowed")
        position += 4
        values = []
        for _ in range(count):
            value, position = element.unpack(buffer, position)
            values.append(value)
        return tuple(values), position

    return Xdr(pack, unpack)


def optional(element: Xdr) -> Xdr:
    """Optional data: a flag, then the value if the flag is set."""

    def pack(value: Any, out: list[bytes]) -> None:
        _pack_bool(value is not None, out)
        if value is not None:
            element.pack(value, out)

    def unpack(buffer: Buffer, position: int) -> tuple[Any, int]:
        is_present, position = _unpack_bool(buffer, position)
        return element.unpack(buffer, position) if is_present else (None, position)

    return Xdr(pack, unpack)


def _pack_address(address: Address, out: list[bytes]) -> None:
    if not 0 <= address.port <= PORT_MAX:
        raise WireError(f"{address.port} is not a port number")
    _pack_text(address.host, out, HOST_BYTES_MAX)
    out.append(_UINT.pack(address.port))


def _unpack_address(buffer: Buffer, position: int) -> tuple[Address, int]:
    host, position = _unpack_text(buffer, position, HOST_BYTES_MAX)
    (port,) = _UINT.unpack_from(buffer, position)
    if port > PORT_MAX:
        raise WireError(f"{port} is not a port number")
    return Address(host, port), position + 4


ADDRESS = Xdr(_pack_address, _unpack_address)


@lru_cache(PEER_INFOS_CACHED)
def _peer_info_bytes(peer_info: PeerInfo) -> bytes:
    out = [_HYPER.pack(peer_info.peer_id)]
    _pack_address(peer_info.address, out)
    return b"".join(out)


@lru_cache(PEER_INFOS_CACHED)
def _decode_peer_info(encoded: bytes) -> PeerInfo:
    """Cached, because the same peers appear in many messages."""
    (peer_id,) = _HYPER.unpack_from(encoded)
    address, _ = _unpack_address(encoded, _HYPER.size)
    return PeerInfo(peer_id, address)


def _pack_peer_info(peer_info: PeerInfo, out: list[bytes]) -> None:
    out.append(_peer_info_bytes(peer_info))


def _unpack_peer_info(buffer: Buffer, position: int) -> tuple[PeerInfo, int]:
    (host_bytes,) = _UINT.unpack_from(buffer, position + _HYPER.size)
    end = position + _HYPER.size + 4 + host_bytes + (-host_bytes & 3) + 4
    if host_bytes > HOST_BYTES_MAX or end > len(buffer):
        raise WireError("peer info truncated")
    return _decode_peer_info(bytes(buffer[position:end])), end


PEER_INFO = Xdr(_pack_peer_info, _unpack_peer_info)


def numbers(kind: Callable[..., Any], layout: str) -> Xdr:
    """A tuple type whose fields have fixed sizes."""
    packer = struct.Struct(layout)

    def pack(value: tuple[Any, ...], out: list[bytes]) -> None:
        out.append(packer.pack(*value))

    def unpack(buffer: Buffer, position: int) -> tuple[Any, int]:
        return kind(*packer.unpack_from(buffer, position)), position + packer.size

    return Xdr(pack, unpack)


AUTHOR_STATE = numbers(AuthorState, ">QQQQ")
TREE_POSITION = numbers(TreePosition, ">QQQQ")
BEACON_ID = numbers(BeaconId, ">QQ")
RECORD_VERSION = numbers(RecordVersion, ">QQQ")


def structure(kind: Callable[..., Any], *fields: Xdr) -> Xdr:
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
