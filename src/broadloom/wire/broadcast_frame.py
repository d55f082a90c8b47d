"""The one frame that the fabric exists for: messages of one author, in a layout made for relaying.

A frame carries one message, or a bundle of them that follow each other. Everything that a relay changes stands in
front, so that a relayed frame is a new prefix and the old rest, made once for all links; what is inside is looked at
only where it is delivered.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import NamedTuple

from broadloom.wire.codec import LENGTH_BYTES
from broadloom.wire.framing import FRAME_BYTES_MAX
from broadloom.wire.xdr import WireError

BROADCAST = 21
SIGNATURE_BYTES_MAX = 128
BUNDLE_MESSAGES_MAX = 1 << 16
"""Messages in one frame."""
PRIORITY_MAX = 255

PREFIX = struct.Struct(">IIII")
"""Length, number, hops travelled, age in milliseconds: what may differ from copy to copy."""

_CORE = struct.Struct(">QQIIIIII")
"""Author, first sequence, run offset, messages in the frame, way, kind, priority, lifetime."""
_HEADER = struct.Struct(">IIIIQQIII")
"""The prefix and the front of the core: all that a relay needs to tell new from old."""
_UINT = struct.Struct(">I")
_CORE_AT = PREFIX.size
_TAIL_AT = PREFIX.size + _CORE.size
_BYTES_MIN = _TAIL_AT + 12
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")
SPLIT_FRAME_BYTES_MIN = 8 << 10
"""From this size on, copying a frame costs more than sending it in two parts."""
HOPS_MAX = 0xFFFFFFFF
AGE_MS_MAX = 0xFFFFFFFF


class Dissemination(IntEnum):
    """How a frame spreads: its author's choice."""

    FLOOD = 0
    """To all neighbours: fastest and most robust."""
    TREE = 1
    """Announce and pull: along a tree that the fabric learns, with names on all other links."""


class PayloadKind(IntEnum):
    """What a message is to the layer above the fabric. The fabric itself does not care."""

    DATA = 0
    """The application's bytes."""
    FRAGMENT = 1
    """A part of a message that is too large for one frame."""
    FILE = 2
    """A file, with its name and hash."""


class Priority(IntEnum):
    """When somebody falls behind, the higher go first. Any number up to 255 will do."""

    LOW = 0
    """Who falls far behind does not get these at all, and is told so."""
    NORMAL = 1
    HIGH = 2


class Broadcast(NamedTuple):
    """Messages of an author to all. Causes: first copy passed on to the other neighbours and delivered in order."""

    author: int
    sequence: int
    """Of the first message in the frame: 1 for an author's first ever, then one more each time."""
    stream_start: int
    """The sequence that began the author's present run: who knows nothing of the author starts there."""
    messages: tuple[bytes, ...]
    """One, or a bundle."""
    hops: int = 1
    """Links travelled when it arrives."""
    age_ms: int = 0
    """How long it was held on its way; copies older than the retention window are not taken for new."""
    dissemination: int = Dissemination.FLOOD
    kind: int = PayloadKind.DATA
    priority: int = Priority.NORMAL
    ttl_ms: int = 0
    """Not worth delivering after this time; 0 means always."""
    signature: bytes = b""

    @property
    def last_sequence(self) -> int:
        """Sequence of the last message in the frame."""
        return self.sequence + len(self.messages) - 1


def encode_broadcast(broadcast: Broadcast) -> bytes:
    """The frame of a broadcast; WireError if no receiver would take it."""
    stream_offset = broadcast.sequence - broadcast.stream_start
    if stream_offset > 0xFFFFFFFF:
        raise WireError("an author's run has grown beyond 2^32 messages")
    if not 0 <= stream_offset < broadcast.sequence:
        raise WireError("a sequence before the start of its run")
    if len(broadcast.signature) > SIGNATURE_BYTES_MAX:
        raise WireError(f"a signature of {len(broadcast.signature)} bytes, at most {SIGNATURE_BYTES_MAX} are possible")
    count = len(broadcast.messages)
    if not 1 <= count <= BUNDLE_MESSAGES_MAX:
        raise WireError(f"{count} messages in one frame, 1 to {BUNDLE_MESSAGES_MAX} are possible")
    sizes = [len(message) for message in broadcast.messages]
    body_bytes = sum(sizes)
    size = (
        _BYTES_MIN
        + len(broadcast.signature)
        + (-len(broadcast.signature) & 3)
        + 4 * count
        + body_bytes
        + (-body_bytes & 3)
    )
    if size > FRAME_BYTES_MAX:
        raise WireError(f"a broadcast of {size} bytes, at most {FRAME_BYTES_MAX} are possible")
    if not (0 <= broadcast.priority <= PRIORITY_MAX and broadcast.sequence + count <= 1 << 64):
        raise WireError("a priority or a sequence that is out of bounds")
    try:
        return b"".join(
            (
                PREFIX.pack(size - LENGTH_BYTES, BROADCAST, broadcast.hops, broadcast.age_ms),
                _CORE.pack(
                    broadcast.author,
                    broadcast.sequence,
                    stream_offset,
                    count,
                    broadcast.dissemination,
                    broadcast.kind,
                    broadcast.priority,
                    broadcast.ttl_ms,
                ),
                _UINT.pack(len(broadcast.signature)),
                broadcast.signature,
                _PADDING[len(broadcast.signature) & 3],
                struct.pack(f">{count + 2}I", count, *sizes, body_bytes),
                *broadcast.messages,
                _PADDING[body_bytes & 3],
            )
        )
    except struct.error as problem:
        raise WireError(f"Broadcast: {problem}") from None


def read_header(frame: bytes) -> tuple[int, int, int, int, int]:
    """Author, first and last sequence, hops and way: all that a relay needs to tell new from old."""
    if len(frame) < _BYTES_MIN:
        raise WireError(f"a broadcast of {len(frame)} bytes")
    _, _, hops, _, author, sequence, stream_offset, count, dissemination = _HEADER.unpack_from(frame)
    if not stream_offset < sequence:
        raise WireError("a sequence before the start of its run")
    if not 1 <= count <= BUNDLE_MESSAGES_MAX or sequence + count > 1 << 64:
        raise WireError("a number of messages or a sequence that is out of bounds")
    return author, sequence, sequence + count - 1, hops, dissemination


def read_hops_and_age(frame: bytes) -> tuple[int, int]:
    """Hops and age of this copy."""
    if len(frame) < PREFIX.size:
        raise WireError(f"a broadcast of {len(frame)} bytes")
    _, _, hops, age_ms = PREFIX.unpack_from(frame)
    return hops, age_ms


def signed_part(frame: bytes) -> bytes:
    """What the author vouches for with its signature: everything but the signature itself and what relays change."""
    signature_bytes = int.from_bytes(frame[_TAIL_AT : _TAIL_AT + 4], "big")
    messages_at = _TAIL_AT + 4 + (signature_bytes + 3 & ~3)
    return frame[_CORE_AT:_TAIL_AT] + frame[messages_at:]


def forwarded(frame: bytes, hops: int, age_ms: int) -> bytes:
    """The frame to send on: the same message, further travelled. A stranger's numbers may be at their end."""
    hops, age_ms = min(hops, HOPS_MAX), min(age_ms, AGE_MS_MAX)
    prefix = PREFIX.pack(len(frame) - LENGTH_BYTES, BROADCAST, hops, age_ms)
    return b"".join((prefix, memoryview(frame)[PREFIX.size :]))  # one copy, where `+` and a slice would make two


def relayed(frame: bytes, hops: int, age_ms: int) -> tuple[bytes, memoryview | None]:
    """The same in two parts, of which the second is that of the frame itself, not copied. Small ones are in one."""
    if len(frame) < SPLIT_FRAME_BYTES_MIN:
        return forwarded(frame, hops, age_ms), None
    hops, age_ms = min(hops, HOPS_MAX), min(age_ms, AGE_MS_MAX)
    prefix = PREFIX.pack(len(frame) - LENGTH_BYTES, BROADCAST, hops, age_ms)
    return prefix, memoryview(frame)[PREFIX.size :]


def decode_broadcast(frame: bytes) -> Broadcast:
    """The whole message; WireError if any byte is out of place."""
    if len(frame) < _BYTES_MIN:
        raise WireError(f"a broadcast of {len(frame)} bytes")
    length, number, hops, age_ms = PREFIX.unpack_from(frame)
    author, sequence, stream_offset, count, dissemination, kind, priority, ttl_ms = _CORE.unpack_from(frame, _CORE_AT)
    if length != len(frame) - LENGTH_BYTES or number != BROADCAST:
        raise WireError("not a broadcast frame")
    if not stream_offset < sequence:
        raise WireError("a sequence before the start of its run")
    if not 1 <= count <= BUNDLE_MESSAGES_MAX or priority > PRIORITY_MAX or sequence + count > 1 << 64:
        raise WireError("a number of messages, a priority or a sequence that is out of bounds")
    try:
        signature, at = _signature(frame)
        declared_count, *sizes, body_bytes = struct.unpack_from(f">{count + 2}I", frame, at)
    except struct.error:
        raise WireError("the broadcast ends too early") from None
    at += 4 * (count + 2)
    end = at + body_bytes
    if declared_count != count or sum(sizes) != body_bytes or end + (-body_bytes & 3) != len(frame):
        raise WireError("the sizes of the messages do not add up")
    if frame[end:] != _PADDING[body_bytes & 3]:
        raise WireError("padding is missing or not zero")
    messages = (frame[at:end],) if count == 1 else _unbundled(frame, at, end, sizes)
    return Broadcast(
        author,
        sequence,
        sequence - stream_offset,
        messages,
        hops,
        age_ms,
        dissemination,
        kind,
        priority,
        ttl_ms,
        signature,
    )


def _signature(frame: bytes) -> tuple[bytes, int]:
    """The signature and the position behind it."""
    (size,) = _UINT.unpack_from(frame, _TAIL_AT)
    if not size:
        return b"", _TAIL_AT + 4
    end = _TAIL_AT + 4 + size
    after = end + (-size & 3)
    if size > SIGNATURE_BYTES_MAX or frame[end:after] != _PADDING[size & 3]:
        raise WireError("a signature that is too long or not padded with zeros")
    return frame[_TAIL_AT + 4 : end], after


def _unbundled(frame: bytes, at: int, end: int, sizes: Sequence[int]) -> tuple[bytes, ...]:
    """The messages of a bundle. Often they are of one size, and then all are cut in one go."""
    size = sizes[0]
    if size and sizes.count(size) == len(sizes):
        return tuple([message for (message,) in struct.iter_unpack(f"{size}s", memoryview(frame)[at:end])])
    return tuple([frame[start:stop] for start, stop in pairwise(accumulate(sizes, initial=at))])
