"""What the messages of a trial say: who says it, when, and filler that can be checked.

The rule: from a payload alone, a receiver can tell that it is whole, that it is the one that its author sent under
this number, and when it and the one before it were sent. So no process needs another's records to audit a delivery.
"""

import hashlib
import struct
from typing import NamedTuple

_HEADER = struct.Struct(">QQQQ")
SIZE_MIN_BYTES = _HEADER.size + 8
"""With less there would be no filler to speak of."""


class PayloadCorruptedError(ValueError):
    """These are not the bytes that were sent."""


class CheckedPayload(NamedTuple):
    author: int
    sequence: int
    sent_ns: int
    """CLOCK_MONOTONIC, which all processes of a machine share."""
    previous_sent_ns: int
    """When this author sent the message before this one; 0 if it is the first."""


def encode(content: CheckedPayload, size_bytes: int) -> bytes:
    header = _HEADER.pack(*content)
    return header + _filler(header, size_bytes - len(header))


def decode(data: bytes) -> CheckedPayload:
    """Altered if a single bit is not as it was made."""
    header = data[: _HEADER.size]
    if len(data) < SIZE_MIN_BYTES or data[_HEADER.size :] != _filler(header, len(data) - _HEADER.size):
        raise PayloadCorruptedError(f"{len(data)} bytes that nobody made")
    return CheckedPayload(*_HEADER.unpack(header))


def _filler(header: bytes, size_bytes: int) -> bytes:
    return hashlib.shake_128(header).digest(size_bytes)
