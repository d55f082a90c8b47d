"""Headers of a message: topic, content type, the sender's time and user headers, in front of its data.

A message has them if the kind of its frame has the flag `HAS_HEADERS`. A message without them costs no byte. Layout:
time of sending in milliseconds since 1970 (6 bytes), size of the fields (2 bytes), the fields, then the data. A field
is a tag (1 byte), a size (2 bytes) and a value. Unknown tags below `CRITICAL_TAG` are skipped.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from broadloom.wire.xdr import WireError

HEADER_BYTES_MAX = 4096
"""Size of all fields of one message."""
TOPIC_BYTES_MAX = 256
TOPIC_LEVELS_MAX = 16
USER_HEADERS_MAX = 32
"""User headers of one message."""
CRITICAL_TAG = 128
"""A message with an unknown tag from here on must not be delivered: it would be misunderstood."""

ENCODINGS_MAX = 8
"""Encodings of one message."""
FORWARDS_MAX = 8
"""Channels that a message may have passed before."""

TOPIC, CONTENT_TYPE, USER_HEADER, FORWARDED_FROM = 1, 2, 3, 4
ENCODING = 129
_TEXT_TAGS = (TOPIC, CONTENT_TYPE, USER_HEADER, FORWARDED_FROM, ENCODING)
_TIME_AND_SIZE = struct.Struct(">HIH")
_FIELD = struct.Struct(">BH")
_CACHED_BLOCKS = 4096
_CACHED_BLOCK_BYTES_MAX = 512
_NO_USER_HEADERS: Mapping[str, str] = MappingProxyType({})


class Headers(NamedTuple):
    topic: str | None = None
    content_type: str | None = None
    user_headers: Mapping[str, str] = _NO_USER_HEADERS
    """Names and values of the application."""
    encodings: tuple[str, ...] = ()
    """What was done to the data, in this order. Receivers undo it (`channel/encodings.py`)."""
    forwarded_from: tuple[str, ...] = ()
    """Channels that the message was sent on before, the first one first."""


class Envelope(NamedTuple):
    """The headers of one message and the time at which its author sent it, by the author's clock."""

    headers: Headers
    sent_at_ms: int
    remaining: tuple[str, ...] = ()
    """Encodings that the receiver could not undo: the data is still encoded."""


@lru_cache(maxsize=_CACHED_BLOCKS)
def encode_headers(
    topic: str | None,
    content_type: str | None,
    user_headers: tuple[tuple[str, str], ...],
    encodings: tuple[str, ...] = (),
    forwarded_from: tuple[str, ...] = (),
) -> bytes:
    """The fields as bytes, without time and size. Raises `ValueError` if they are too large."""
    fields = [(TOPIC, topic.encode())] if topic is not None else []
    if content_type is not None:
        fields.append((CONTENT_TYPE, content_type.encode()))
    fields += [(USER_HEADER, name.encode() + b"\0" + value.encode()) for name, value in user_headers]
    fields += [(FORWARDED_FROM, name.encode()) for name in forwarded_from]
    fields += [(ENCODING, name.encode()) for name in encodings]
    size = sum(_FIELD.size + len(value) for _, value in fields)
    if size > HEADER_BYTES_MAX:
        raise ValueError(f"headers of {size:,} bytes: at most {HEADER_BYTES_MAX:,} are allowed")
    return b"".join(part for tag, value in fields for part in (_FIELD.pack(tag, len(value)), value))


def with_headers(block: bytes, sent_at_ms: int, data: bytes) -> bytes:
    """The payload of a message with headers."""
    return b"".join((_TIME_AND_SIZE.pack(sent_at_ms >> 32, sent_at_ms & 0xFFFFFFFF, len(block)), block, data))


def split_headers(payload: bytes) -> tuple[Envelope, bytes]:
    """The envelope and the data of a message with headers. Raises `WireError`."""
    if len(payload) < _TIME_AND_SIZE.size:
        raise WireError("headers truncated")
    high, low, size = _TIME_AND_SIZE.unpack_from(payload)
    end = _TIME_AND_SIZE.size + size
    if size > HEADER_BYTES_MAX or end > len(payload):
        raise WireError("headers too large or truncated")
    block = payload[_TIME_AND_SIZE.size : end]
    decode = _decode_cached if size <= _CACHED_BLOCK_BYTES_MAX else decode_headers
    return Envelope(decode(block), high << 32 | low), payload[end:]


def decode_headers(block: bytes) -> Headers:
    topic = content_type = None
    user_headers: dict[str, str] = {}
    encodings: tuple[str, ...] = ()
    forwarded_from: tuple[str, ...] = ()
    at = 0
    try:
        while at < len(block):
            tag, size = _FIELD.unpack_from(block, at)
            at += _FIELD.size
            if at + size > len(block):
                raise WireError("header field truncated")
            text = block[at : at + size].decode() if tag in _TEXT_TAGS else ""
            at += size
            if tag == TOPIC:
                topic = checked_topic(text)
            elif tag == CONTENT_TYPE:
                content_type = text
            elif tag == USER_HEADER:
                name, separator, value = text.partition("\0")
                if not separator or not name or len(user_headers) >= USER_HEADERS_MAX:
                    raise WireError("header without a name, or too many headers")
                user_headers[name] = value
            elif tag == FORWARDED_FROM:
                forwarded_from += (text,)
            elif tag == ENCODING:
                encodings += (text,)
            elif tag >= CRITICAL_TAG:
                raise WireError(f"unknown header field {tag}")
    except (struct.error, UnicodeDecodeError, ValueError) as problem:
        raise WireError(f"headers: {problem}") from None
    if len(encodings) > ENCODINGS_MAX or len(forwarded_from) > FORWARDS_MAX:
        raise WireError("too many encodings, or forwarded too often")
    named = MappingProxyType(user_headers) if user_headers else _NO_USER_HEADERS
    return Headers(topic, content_type, named, encodings, forwarded_from)


_decode_cached = lru_cache(maxsize=_CACHED_BLOCKS)(decode_headers)


def checked_headers(
    topic: str | None, content_type: str | None, user_headers: Mapping[str, str] | None
) -> tuple[str | None, str | None, tuple[tuple[str, str], ...]]:
    """The arguments of `encode_headers`. Raises `TypeError` or `ValueError` for what receivers would reject."""
    for what, text in (("topic", topic), ("content_type", content_type)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{what} must be text, not {text!r}")
    if topic is not None:
        checked_topic(topic)
    if user_headers is not None and not isinstance(user_headers, Mapping):
        raise TypeError(f"headers must be a mapping of names to values, not {type(user_headers).__name__}")
    items = tuple(user_headers.items()) if user_headers is not None else ()
    if len(items) > USER_HEADERS_MAX:
        raise ValueError(f"{len(items)} headers: at most {USER_HEADERS_MAX} are allowed")
    for name, value in items:
        if not all(isinstance(text, str) for text in (name, value)):
            raise TypeError(f"headers are text, not {name!r}: {value!r}")
        if not name or "\0" in name:
            raise ValueError(f"header name {name!r}: must not be empty or contain a zero character")
    return topic, content_type, items


def checked_topic(topic: str) -> str:
    """Raises `ValueError` if this is not a topic: levels separated by `/`, none empty, no `*`, nothing unprintable."""
    if not topic.isprintable():
        raise ValueError(f"topic {topic!r}: control characters are not allowed")
    if "*" in topic:
        raise ValueError(f"topic {topic!r}: `*` is allowed in patterns only")
    return checked_levels("topic", topic)


def checked_levels(what: str, text: str) -> str:
    levels = text.split("/")
    if "" in levels:
        raise ValueError(f"{what} {text!r}: a level is empty; write it as in sports/nfl")
    if len(levels) > TOPIC_LEVELS_MAX:
        raise ValueError(f"{what} {text[:40]!r}: {len(levels)} levels; at most {TOPIC_LEVELS_MAX} are allowed")
    if (size := len(text.encode(errors="surrogatepass"))) > TOPIC_BYTES_MAX:
        raise ValueError(f"{what} {text[:40]!r}: {size:,} bytes; at most {TOPIC_BYTES_MAX} are allowed")
    return text
