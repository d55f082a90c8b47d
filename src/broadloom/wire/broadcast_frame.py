"""The broadcast frame: one message of an author, or a bundle of consecutive ones, in a layout made for relaying.

Everything that a relay changes is in the prefix. So a relayed frame is a new prefix and the unchanged rest, made once
for all links, and the messages inside are decoded only where they are delivered.
"""

import hashlib
import struct
from collections.abc import Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from broadloom.wire.codec import LENGTH_BYTES, Frame
from broadloom.wire.framing import FRAME_BYTES_MAX
from broadloom.wire.payload_kind import PayloadKind
from broadloom.wire.xdr import PADDING, WireError

BROADCAST = 21
SIGNATURE_BYTES_MAX = 128
BUNDLE_MESSAGES_MAX = 1 << 16
"""Messages in one frame."""
PRIORITY_MAX = 255

PREFIX = struct.Struct(">IIII")
"""Length, message number, hops, age in milliseconds: what differs from copy to copy."""

_CORE = struct.Struct(">QQIIIIII")
"""Author, first sequence, stream offset, number of messages, dissemination, kind, priority, TTL."""
_HEADER = struct.Struct(">IIIIQQIII")
"""The prefix and the start of the core: all that duplicate detection needs."""
_UINT = struct.Struct(">I")
SIGNED_PART_BYTES = _CORE.size + hashlib.sha256().digest_size
_CORE_AT = PREFIX.size
_TAIL_AT = PREFIX.size + _CORE.size
_SIGNED_HEAD_END = _TAIL_AT + 4 + SIGNATURE_BYTES_MAX
_BYTES_MIN = _TAIL_AT + 12
SPLIT_FRAME_BYTES_MIN = 8 << 10
"""Copying a larger frame costs more than sending it in two parts."""
HOPS_MAX = 0xFFFFFFFF
AGE_MS_MAX = 0xFFFFFFFF


class Dissemination(IntEnum):
    """How a frame spreads; chosen by its author."""

    FLOOD = 0
    """To all neighbors: fastest and most robust."""
    TREE = 1
    """Along the author's broadcast tree (Plumtree), with `IHave` on all other links."""


FLOOD: Final = Dissemination.FLOOD
TREE: Final = Dissemination.TREE
"""For the hot path: looking up a member of an enum takes longer than a comparison."""


class Priority(IntEnum):
    """Messages of higher priority are sent first over a congested link. Any number from 0 to 255 is valid."""

    LOW = 0
    """A receiver far behind does not get these; it gets a `Missed` event instead."""
    NORMAL = 1
    HIGH = 2


class Broadcast(NamedTuple):
    """Messages of an author to all peers. Causes: the first copy is relayed to the other neighbors and delivered in
    order."""

    author: int
    sequence: int
    """Number of the first message in the frame; an author's messages are numbered from 1."""
    stream_start: int
    """First sequence number of the author's current stream: peers that do not know the author start there."""
    messages: tuple[bytes, ...]
    hops: int = 1
    """Links traveled, including the one it arrives on."""
    age_ms: int = 0
    """Time spent at relays; copies older than `retention_s` are ignored."""
    dissemination: int = Dissemination.FLOOD
    kind: int = PayloadKind.DATA
    priority: int = Priority.NORMAL
    ttl_ms: int = 0
    """Not delivered after this time; 0: no limit."""
    signature: bytes = b""

    @property
    def last_sequence(self) -> int:
        return self.sequence + len(self.messages) - 1


def encode_broadcast(broadcast: Broadcast) -> bytes:
    """Raises `WireError` if receivers would reject the frame."""
    stream_offset = broadcast.sequence - broadcast.stream_start
    if stream_offset > 0xFFFFFFFF:
        raise WireError("the author's stream exceeds 2^32 messages")
    if not 0 <= stream_offset < broadcast.sequence:
        raise WireError("sequence number before the start of the stream")
    if len(broadcast.signature) > SIGNATURE_BYTES_MAX:
        raise WireError(f"signature of {len(broadcast.signature)} bytes, at most {SIGNATURE_BYTES_MAX} are allowed")
    count = len(broadcast.messages)
    if not 1 <= count <= BUNDLE_MESSAGES_MAX:
        raise WireError(f"{count} messages in one frame, allowed are 1 to {BUNDLE_MESSAGES_MAX}")
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
        raise WireError(f"broadcast of {size} bytes, at most {FRAME_BYTES_MAX} are allowed")
    if not (0 <= broadcast.priority <= PRIORITY_MAX and broadcast.sequence + count <= 1 << 64):
        raise WireError("priority or sequence number out of range")
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
                PADDING[len(broadcast.signature) & 3],
                struct.pack(f">{count + 2}I", count, *sizes, body_bytes),
                *broadcast.messages,
                PADDING[body_bytes & 3],
            )
        )
    except struct.error as problem:
        raise WireError(f"Broadcast: {problem}") from None


def single_layout(signature_bytes: int) -> struct.Struct:
    """A frame with one message and a signature of this size, up to its data: prefix, core, size of the signature,
    signature, number of sizes, the size, and the sum of the sizes."""
    assert signature_bytes % 4 == 0, "the layout has no padding"
    return struct.Struct(f"{PREFIX.format}{_CORE.format[1:]}I{signature_bytes}sIII")


def read_header(frame: Frame) -> tuple[int, int, int, int, int]:
    """Return author, first and last sequence number, hops and dissemination: all that duplicate detection needs."""
    if len(frame) < _BYTES_MIN:
        raise WireError(f"broadcast of only {len(frame)} bytes")
    _, _, hops, _, author, sequence, stream_offset, count, dissemination = _HEADER.unpack_from(frame)
    if not stream_offset < sequence:
        raise WireError("sequence number before the start of the stream")
    if not 1 <= count <= BUNDLE_MESSAGES_MAX or sequence + count > 1 << 64:
        raise WireError("message count or sequence number out of range")
    return author, sequence, sequence + count - 1, hops, dissemination


def read_hops_and_age(frame: Frame) -> tuple[int, int]:
    if len(frame) < PREFIX.size:
        raise WireError(f"broadcast of only {len(frame)} bytes")
    _, _, hops, age_ms = PREFIX.unpack_from(frame)
    return hops, age_ms


def signature_of(frame: Frame) -> bytes:
    """The signature of a frame that was received, which may be malformed."""
    (size,) = _UINT.unpack_from(frame, _TAIL_AT)
    return bytes(frame[_TAIL_AT + 4 : _TAIL_AT + 4 + size])


def is_copy(frame: Frame, other: Frame) -> bool:
    """Whether two frames have the same header and signature, apart from what relays change."""
    return frame[_CORE_AT:_SIGNED_HEAD_END] == other[_CORE_AT:_SIGNED_HEAD_END]


def signed_part(frame: Frame) -> bytes:
    """What the author signs: everything but the signature itself and the prefix, which relays change. The messages are
    hashed, so that this part and the signature prove later that they existed (`read_signed_part`)."""
    signature_bytes = int.from_bytes(frame[_TAIL_AT : _TAIL_AT + 4], "big")
    messages_at = _TAIL_AT + 4 + (signature_bytes + 3 & ~3)
    return bytes(frame[_CORE_AT:_TAIL_AT]) + hashlib.sha256(memoryview(frame)[messages_at:]).digest()


def read_signed_part(part: bytes) -> tuple[int, int]:
    """Return the author and the last sequence number of the frame that this part was taken from."""
    if len(part) != SIGNED_PART_BYTES:
        raise WireError(f"signed part of {len(part)} bytes, not {SIGNED_PART_BYTES}")
    author, sequence, stream_offset, count, *_ = _CORE.unpack_from(part)
    if not stream_offset < sequence or not 1 <= count <= BUNDLE_MESSAGES_MAX or sequence + count > 1 << 64:
        raise WireError("message count or sequence number out of range")
    return author, sequence + count - 1


def forwarded(frame: Frame, hops: int, age_ms: int) -> bytes:
    """Return the frame with another prefix. The numbers are capped: a malicious peer may send the largest ones."""
    hops, age_ms = min(hops, HOPS_MAX), min(age_ms, AGE_MS_MAX)
    prefix = PREFIX.pack(len(frame) - LENGTH_BYTES, BROADCAST, hops, age_ms)
    return b"".join((prefix, memoryview(frame)[PREFIX.size :]))  # one copy; slicing and `+` would make two


def relayed(frame: Frame, hops: int, age_ms: int) -> tuple[bytes, memoryview | None]:
    """Like `forwarded`, but a large frame is returned in two parts, the second a view of the original frame."""
    if len(frame) < SPLIT_FRAME_BYTES_MIN:
        return forwarded(frame, hops, age_ms), None
    hops, age_ms = min(hops, HOPS_MAX), min(age_ms, AGE_MS_MAX)
    prefix = PREFIX.pack(len(frame) - LENGTH_BYTES, BROADCAST, hops, age_ms)
    return prefix, memoryview(frame)[PREFIX.size :]


def decode_broadcast(frame: Frame) -> Broadcast:
    """Decode a frame completely; raises `WireError` if any byte is invalid."""
    if len(frame) < _BYTES_MIN:
        raise WireError(f"broadcast of only {len(frame)} bytes")
    length, number, hops, age_ms = PREFIX.unpack_from(frame)
    author, sequence, stream_offset, count, dissemination, kind, priority, ttl_ms = _CORE.unpack_from(frame, _CORE_AT)
    if length != len(frame) - LENGTH_BYTES or number != BROADCAST:
        raise WireError("not a broadcast frame")
    if not stream_offset < sequence:
        raise WireError("sequence number before the start of the stream")
    if not 1 <= count <= BUNDLE_MESSAGES_MAX or priority > PRIORITY_MAX or sequence + count > 1 << 64:
        raise WireError("message count, priority or sequence number out of range")
    try:
        signature, at = _signature(frame)
        declared_count, *sizes, body_bytes = struct.unpack_from(f">{count + 2}I", frame, at)
    except struct.error:
        raise WireError("broadcast truncated") from None
    at += 4 * (count + 2)
    end = at + body_bytes
    if declared_count != count or sum(sizes) != body_bytes or end + (-body_bytes & 3) != len(frame):
        raise WireError("message sizes do not add up")
    if frame[end:] != PADDING[body_bytes & 3]:
        raise WireError("padding is missing or nonzero")
    messages = _unbundled(memoryview(frame)[at:end], sizes)
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


def _signature(frame: Frame) -> tuple[bytes, int]:
    """Return the signature and the position after it."""
    (size,) = _UINT.unpack_from(frame, _TAIL_AT)
    if not size:
        return b"", _TAIL_AT + 4
    end = _TAIL_AT + 4 + size
    after = end + (-size & 3)
    if size > SIGNATURE_BYTES_MAX or frame[end:after] != PADDING[size & 3]:
        raise WireError("signature too long or not padded with zeros")
    return bytes(frame[_TAIL_AT + 4 : end]), after


def _unbundled(data: memoryview, sizes: Sequence[int]) -> tuple[bytes, ...]:
    """Split a bundle. If all messages have the same size, which is common, one call does it."""
    if len(sizes) == 1:
        return (bytes(data),)
    size = sizes[0]
    if size and sizes.count(size) == len(sizes):
        return tuple([message for (message,) in struct.iter_unpack(f"{size}s", data)])
    return tuple([bytes(data[start:stop]) for start, stop in pairwise(accumulate(sizes, initial=0))])
