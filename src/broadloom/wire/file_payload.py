"""A file as a message: name, SHA-256 hash, content."""

import hashlib
from pathlib import PurePosixPath, PureWindowsPath
from typing import NamedTuple

from broadloom.wire.xdr import HOST_BYTES_MAX, WireError, fixed_opaque, string

HASH_BYTES = 32
_NAME = string(HOST_BYTES_MAX)
_HASH = fixed_opaque(HASH_BYTES)


class File(NamedTuple):
    """A received file. The hash of its content has been verified."""

    name: str
    """Without directories: the sender must not choose where the file is saved."""
    content: bytes


def encode_file(name: str, content: bytes) -> bytes:
    out: list[bytes] = []
    _NAME.pack(_base_name(name), out)
    _HASH.pack(hashlib.sha256(content).digest(), out)
    out.append(content)
    return b"".join(out)


def decode_file(data: bytes) -> File:
    """Raises `WireError` if the message is not a file, or if its content does not match the hash."""
    try:
        name, position = _NAME.unpack(data, 0)
        declared_hash, position = _HASH.unpack(data, position)
    except Exception as problem:
        raise WireError(f"not a file: {problem}") from None
    content = data[position:]
    if hashlib.sha256(content).digest() != declared_hash:
        raise WireError(f"the file {name!r} is damaged: its content does not match its hash")
    return File(_base_name(name), content)


def _base_name(name: str) -> str:
    """The last component of a POSIX or Windows path."""
    base_name = PureWindowsPath(PurePosixPath(name).name).name
    return base_name if base_name not in ("", ".", "..") else "unnamed"
