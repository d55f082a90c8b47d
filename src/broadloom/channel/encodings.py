"""Undoing what rules of the author did to the data of a message: compression, and encryption if we have the key.

A hostile member must not gain by it: compressed data may grow by a limited factor only.
"""

import zlib
from collections.abc import Sequence

from broadloom.security.sealing import ENCODING_NAME as X25519
from broadloom.security.sealing import SealingPrivateKey, unseal
from broadloom.wire import WireError
from broadloom.wire.message_headers import Envelope

ZLIB = "zlib"
GROWTH_MAX = 100
"""Factor by which data may grow when it is decompressed; and up to `SMALL_BYTES` in any case."""
SMALL_BYTES = 64 << 10


def compress(data: bytes) -> bytes | None:
    """The data compressed with zlib; None if that would not help, or if receivers would reject it."""
    packed = zlib.compress(data)
    return packed if len(packed) < len(data) <= _grown_bytes_max(len(packed)) else None


def undo_encodings(
    envelope: Envelope, data: bytes, keys: Sequence[SealingPrivateKey], bytes_max: int
) -> tuple[Envelope, bytes]:
    """The plain data. What cannot be undone here remains in `envelope.remaining`. Raises `WireError`."""
    encodings = envelope.headers.encodings
    if encodings.count(ZLIB) > 1:
        raise WireError("compressed more than once: the data could grow without limit")
    for undone, encoding in enumerate(reversed(encodings)):
        if encoding == ZLIB:
            data = _decompress(data, bytes_max)
        else:
            plain = unseal(data, keys) if encoding == X25519 else None
            if plain is None:
                return envelope._replace(remaining=encodings[: len(encodings) - undone]), data
            data = plain
    return envelope, data


def _decompress(data: bytes, bytes_max: int) -> bytes:
    most = min(bytes_max, _grown_bytes_max(len(data)))
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(data, most + 1)
    except zlib.error as problem:
        raise WireError(f"compressed data is damaged: {problem}") from None
    if len(plain) > most:
        raise WireError(f"compressed data grows to more than {most:,} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise WireError("compressed data is truncated, or something follows it")
    return plain


def _grown_bytes_max(size: int) -> int:
    return max(SMALL_BYTES, GROWTH_MAX * size)
