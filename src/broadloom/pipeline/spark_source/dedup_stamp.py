"""A stamp in front of a message that a sink broadcasts, by which receivers tell a double from a new message.

A channel delivers each message once, but a sink whose task is repeated (a lost executor, a killed driver) says the same
rows again, as other messages. Nobody can take back what was said, so the sink promises *at least once*. With a stamp,
which is the same whenever the same row is said, whoever counts can count each once.

A stamp is 4 bytes that say so, 8 of the hash of the name, and the numbers of batch, partition and row in 8, 4 and 8.
"""

import hashlib
import struct
from typing import NamedTuple

_FORMAT = struct.Struct(">4s8sqiq")
_MAGIC = b"\x00wst"


class DedupStamp(NamedTuple):
    origin: str
    """The sink's name, hashed: 16 hexadecimal digits."""
    batch: int
    """The number of the micro-batch; -1 of a sink that is no stream."""
    partition: int
    row: int


def origin_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def add_stamp(stamp: DedupStamp, data: bytes) -> bytes:
    return _FORMAT.pack(_MAGIC, bytes.fromhex(stamp.origin), stamp.batch, stamp.partition, stamp.row) + data


def split_stamp(data: bytes) -> tuple[DedupStamp | None, bytes]:
    """The stamp, if there is one, and the message without it."""
    if len(data) < _FORMAT.size or not data.startswith(_MAGIC):
        return None, data
    _, origin, batch, partition, row = _FORMAT.unpack_from(data)
    return DedupStamp(origin.hex(), batch, partition, row), data[_FORMAT.size :]


class DuplicateFilter:
    """Says of each message whether it was there before. A sink says the rows of a partition in order, so one number for
    each partition is enough."""

    def __init__(self) -> None:
        self._last_rows: dict[tuple[str, int, int], int] = {}

    def is_duplicate(self, stamp: DedupStamp) -> bool:
        """Whether it was; and from now on it was."""
        key = stamp[:3]
        if stamp.row <= self._last_rows.get(key, -1):
            return True
        self._last_rows[key] = stamp.row
        return False
