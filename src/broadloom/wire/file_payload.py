"""A file as a message: its name and the hash of its content in front of the content."""

import hashlib
from pathlib import PurePosixPath, PureWindowsPath
from typing import NamedTuple

from broadloom.wire.xdr import HOST_BYTES_MAX, WireError, fixed_opaque, string

HASH_BYTES = 32
_NAME = string(HOST_BYTES_MAX)
_HASH = fixed_opaque(HASH_BYTES)


class File(NamedTuple):
    """A file that somebody sent. Its content is what was sent: the hash was checked."""

    name: str
    """Without any directory, so that it can be saved where the receiver likes."""
    content: bytes


def encode_file(name: str, content: bytes) -> bytes:
    """The message that carries a file."""
    out: list[bytes] = []
    _NAME.pack(_base_name(name), out)
    _HASH.pack(hashlib.sha256(content).digest(), out)
    out.append(content)
    return b"".join(out)


def decode_file(data: bytes) -> File:
    """The file of a message; WireError if it is none, or not what was sent."""
    try:
        name, position = _NAME.unpack(data, 0)
        declared_hash, position = _HASH.unpack(data, position)
    except Exception as problem:
        raise WireError(f"not a file: {problem}") from None
    content = data[position:]
    if hashlib.sha256(content).digest() != declared_hash:
        raise WireError(f"the file {name!r} is damaged: its content does not fit its hash")
    return File(_base_name(name), content)


def _base_name(name: str) -> str:
    """The last part of a path of any system; a sender must not choose where a file goes."""
    base_name = PureWindowsPath(PurePosixPath(name).name).name
    return base_name if base_name not in ("", ".", "..") else "unnamed"
