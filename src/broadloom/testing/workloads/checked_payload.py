"""A payload that checks itself.

A receiver can tell from the payload alone that it is intact, that its author sent it under this sequence number, and
when it and the previous message were sent. So each process audits its deliveries without the records of another.
"""

import hashlib
import struct
from typing import NamedTuple

_HEADER = struct.Struct(">QQQQ")
SIZE_MIN_BYTES = _HEADER.size + 8
"""Header and a minimum of filler."""


class PayloadCorruptedError(ValueError):
    """The bytes differ from those sent."""


class CheckedPayload(NamedTuple):
    author: int
    sequence: int
    sent_ns: int
    """CLOCK_MONOTONIC, common to all processes of a machine."""
    previous_sent_ns: int
    """When this author sent its previous message; 0 for the first."""


def encode(content: CheckedPayload, size_bytes: int) -> bytes:
    header = _HEADER.pack(*content)
    return header + _filler(header, size_bytes - len(header))


def decode(data: bytes) -> CheckedPayload:
    """Raises `PayloadCorruptedError` if a single bit is wrong."""
    header = data[: _HEADER.size]
    if len(data) < SIZE_MIN_BYTES or data[_HEADER.size :] != _filler(header, len(data) - _HEADER.size):
        raise PayloadCorruptedError(f"{len(data)} bytes without a valid checksum")
    return CheckedPayload(*_HEADER.unpack(header))


def _filler(header: bytes, size_bytes: int) -> bytes:
    return hashlib.shake_128(header).digest(size_bytes)
