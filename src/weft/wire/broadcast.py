"""The one message that the fabric exists for, with a layout made for relaying.

Everything that a relay changes stands in front, so that a relayed frame is a new prefix and the old rest, made once
for all links. Fields for bundles, priorities, expiry and signatures have their place already.
"""

import struct
from typing import NamedTuple

from weft.wire.codec import HEAD, LENGTH_BYTES
from weft.wire.errors import WireError
from weft.wire.framing import FRAME_BYTES_MAX
from weft.wire.xdr import pack_opaque, unpack_opaque

BROADCAST = 21
SIGNATURE_BYTES_MAX = 128

PREFIX = struct.Struct(">IIII")
"""Length, number, hops travelled, age in milliseconds: what may differ from copy to copy."""

_NAME = struct.Struct(">QQI")
_CORE = struct.Struct(">QQIIII")
_CORE_AT = PREFIX.size
_TAIL_AT = PREFIX.size + _CORE.size
_CORE_BYTES_MIN = _TAIL_AT + 8
HOPS_MAX = 0xFFFFFFFF
AGE_MS_MAX = 0xFFFFFFFF


class Broadcast(NamedTuple):
    """A message of an author to all. Causes: first copy passed on to the other neighbours and delivered in order."""

    author: int
    sequence: int
    """1 for an author's first message, then one more each time."""
    run_start: int
    """The sequence that began the author's present run: who knows nothing of the author starts there."""
    payload: bytes
    hops: int = 1
    """Links travelled when it arrives."""
    age_ms: int = 0
    """How long it was held on its way; copies older than the retention window are not taken for new."""
    bundled: int = 1
    """Messages in this frame (room for bundles)."""
    priority: int = 0
    lifetime_ms: int = 0
    """Not worth delivering after this time; 0 means always."""
    signature: bytes = b""


def encode_broadcast(made: Broadcast) -> bytes:
    """The frame of a broadcast; WireError if no receiver would take it."""
    run_offset = made.sequence - made.run_start
    if run_offset > 0xFFFFFFFF:
        raise WireError("an author's run has grown beyond 2^32 messages")
    if not 0 <= run_offset < made.sequence:
        raise WireError("a sequence before the start of its run")
    if len(made.signature) > SIGNATURE_BYTES_MAX:
        raise WireError(f"a signature of {len(made.signature)} bytes, at most {SIGNATURE_BYTES_MAX} are possible")
    out: list[bytes] = []
    pack_opaque(made.signature, out)
    pack_opaque(made.payload, out)
    tail = b"".join(out)
    size = _TAIL_AT + len(tail)
    if size > FRAME_BYTES_MAX:
        raise WireError(f"a broadcast of {size} bytes, at most {FRAME_BYTES_MAX} are possible")
    try:
        prefix = PREFIX.pack(size - LENGTH_BYTES, BROADCAST, made.hops, made.age_ms)
        core = _CORE.pack(made.author, made.sequence, run_offset, made.bundled, made.priority, made.lifetime_ms)
    except struct.error as problem:
        raise WireError(f"Broadcast: {problem}") from None
    return prefix + core + tail


def name_of(frame: bytes) -> tuple[int, int, int]:
    """Author, sequence and run start: all that a relay needs to tell new from old."""
    if len(frame) < _CORE_BYTES_MIN:
        raise WireError(f"a broadcast of {len(frame)} bytes")
    author, sequence, run_offset = _NAME.unpack_from(frame, _CORE_AT)
    if not run_offset < sequence:
        raise WireError("a sequence before the start of its run")
    return author, sequence, sequence - run_offset


def travelled(frame: bytes) -> tuple[int, int]:
    """Hops and age of this copy."""
    if len(frame) < PREFIX.size:
        raise WireError(f"a broadcast of {len(frame)} bytes")
    _, _, hops, age_ms = PREFIX.unpack_from(frame)
    return hops, age_ms


def said(frame: bytes) -> bytes:
    """What the author vouches for with its signature: everything but the signature itself and what relays change."""
    signature_bytes = int.from_bytes(frame[_TAIL_AT : _TAIL_AT + 4], "big")
    payload_at = _TAIL_AT + 4 + (signature_bytes + 3 & ~3)
    return frame[_CORE_AT:_TAIL_AT] + frame[payload_at:]


def forwarded(frame: bytes, hops: int, age_ms: int) -> bytes:
    """The frame to send on: the same message, further travelled. A stranger's numbers may be at their end."""
    hops, age_ms = min(hops, HOPS_MAX), min(age_ms, AGE_MS_MAX)
    return PREFIX.pack(len(frame) - LENGTH_BYTES, BROADCAST, hops, age_ms) + frame[PREFIX.size :]


def decode_broadcast(frame: bytes) -> Broadcast:
    """The whole message; WireError if any byte is out of place."""
    author, sequence, run_start = name_of(frame)
    if HEAD.unpack_from(frame) != (len(frame) - LENGTH_BYTES, BROADCAST):
        raise WireError("not a broadcast frame")
    hops, age_ms = travelled(frame)
    *_, bundled, priority, lifetime_ms = _CORE.unpack_from(frame, _CORE_AT)
    try:
        signature, position = unpack_opaque(frame, _TAIL_AT, SIGNATURE_BYTES_MAX)
        payload, position = unpack_opaque(frame, position, len(frame))
    except struct.error:
        raise WireError("the broadcast ends too early") from None
    if position != len(frame):
        raise WireError(f"{len(frame) - position} bytes too many after a broadcast")
    return Broadcast(author, sequence, run_start, payload, hops, age_ms, bundled, priority, lifetime_ms, signature)
