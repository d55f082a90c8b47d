"""A stamp in front of each message of a sink, by which receivers recognize repeated rows.

A channel delivers each message once, but a sink whose task is retried (a lost executor, a killed driver) broadcasts the
same rows again as new messages. So the sink guarantees *at least once*. With a stamp, which is equal for equal rows, a
receiver can count each row once.

A stamp has 4 magic bytes, 8 bytes of the hashed name, and batch, partition and row number in 8, 4 and 8 bytes.
"""

import hashlib
import struct
from typing import NamedTuple

_FORMAT = struct.Struct(">4s8sqiq")
_MAGIC = b"\x00bst"


class DedupStamp(NamedTuple):
    origin: str
    """Hash of the sink's name: 16 hex digits."""
    batch: int
    """Number of the micro-batch; -1 for a batch sink."""
    partition: int
    row: int


def origin_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def add_stamp(stamp: DedupStamp, data: bytes) -> bytes:
    return _FORMAT.pack(_MAGIC, bytes.fromhex(stamp.origin), stamp.batch, stamp.partition, stamp.row) + data


def split_stamp(data: bytes) -> tuple[DedupStamp | None, bytes]:
    """The stamp, if any, and the message without it."""
    if len(data) < _FORMAT.size or not data.startswith(_MAGIC):
        return None, data
    _, origin, batch, partition, row = _FORMAT.unpack_from(data)
    return DedupStamp(origin.hex(), batch, partition, row), data[_FORMAT.size :]


class DuplicateFilter:
    """Detects repeated messages. A sink sends the rows of a partition in order: one number per partition is enough."""

    def __init__(self) -> None:
        self._last_rows: dict[tuple[str, int, int], int] = {}

    def is_duplicate(self, stamp: DedupStamp) -> bool:
        """Whether this stamp was seen before. Records it as seen."""
        key = stamp[:3]
        if stamp.row <= self._last_rows.get(key, -1):
            return True
        self._last_rows[key] = stamp.row
        return False
