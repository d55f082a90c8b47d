"""Messages on direct connections between two members: requests, replies, one-way messages.

A direct connection begins as an exchange: `DirectOpen` and `DirectAccept`. From then on both sides may send requests.
Each message says what it causes on receipt. Requests and replies are the hot path, so they have functions of their own
beside the codec, with the same bytes.
"""

import struct
from enum import IntEnum
from typing import Annotated

from broadloom.wire import xdr
from broadloom.wire.codec import HEAD, LENGTH_BYTES, Frame, WireMessage, message
from broadloom.wire.fields import PART_BYTES_MAX, PartBytes, UInt
from broadloom.wire.xdr import PADDING, WireError

DIRECT_VERSION = 1
"""Of the messages on direct connections."""
MORE = 1
"""Flag: further parts of the same request, reply or one-way message follow."""
HEADED = 2
"""Flag: the data begins with headers (`message_headers.py`)."""
REQUEST_ID_MAX = 0xFFFFFFFF
DEADLINE_MS_MAX = 0xFFFFFFFF


class RequestStatus(IntEnum):
    """How a request ended at the callee. The data of a reply that is not `OK` is a text in UTF-8."""

    OK = 0
    NO_HANDLER = 1
    """The program does not answer requests, or not those of this layer."""
    REFUSED = 2
    """The handler refused it."""
    FAILED = 3
    """The handler raised an exception, or returned nothing."""
    BUSY = 4
    """Too many requests wait, or too many bytes."""
    TOO_LARGE = 5
    """The reply is larger than the caller accepts."""
    NOT_ALLOWED = 6
    """The settings of the channel do not allow it."""
    EXPIRED = 7
    """The deadline passed before a handler was free."""
    LEAVING = 8
    """The callee is leaving the channel."""


@message(14)
class DirectOpen(WireMessage):
    """Asks to use the connection for requests. Causes: `DirectAccept`, or `Reject`. The limits are those of the
    sender, for what it receives."""

    version: UInt
    inflight_max: UInt
    """Requests at a time that the sender answers."""
    bytes_max: UInt
    """Size of all open requests together, and of all replies of which only a part has been sent."""


@message(15)
class DirectAccept(WireMessage):
    """Accepts: the connection carries requests from here on, in both directions."""

    version: UInt
    inflight_max: UInt
    bytes_max: UInt


@message(16)
class Request(WireMessage):
    """Causes: the handler of the layer is called once the last part has arrived, and its reply is sent. Ids rise; a
    caller that exceeds the limits of the callee is disconnected."""

    id: UInt
    flags: UInt
    deadline_ms: UInt
    """Time that the caller still waits, in the first part; a request that expires before a handler is free is not
    started."""
    layer: UInt
    """The mark of the layer, 0 for the application."""
    data: PartBytes


@message(17)
class Reply(WireMessage):
    """Causes: the request ends at the caller once the last part has arrived. A reply to an unknown id is ignored: the
    caller no longer waits."""

    id: UInt
    status: Annotated[RequestStatus, xdr.enum(RequestStatus)]
    flags: UInt
    data: PartBytes


@message(18)
class Cancel(WireMessage):
    """The caller no longer waits. Causes: the handler is cancelled, and no reply is sent."""

    id: UInt


@message(19)
class Tell(WireMessage):
    """A one-way message. Causes: the handler of the layer is called. Its parts follow each other without another one in
    between."""

    layer: UInt
    flags: UInt
    data: PartBytes


@message(70)
class DirectClose(WireMessage):
    """The sender sends no further request over this connection. Causes: the same message back; the connection is closed
    when no request is open."""


# -- the hot path

_REQUEST = struct.Struct(">IIIIIII")
"""Length, message number, id, flags, deadline, layer, size of the data."""
_REPLY = struct.Struct(">IIIIII")
"""Length, message number, id, status, flags, size of the data."""
_REQUEST_NUMBER, _REPLY_NUMBER = Request.number, Reply.number
_STATUSES = tuple(RequestStatus)
REQUEST_PREFIX, REPLY_PREFIX = _REQUEST_NUMBER.to_bytes(4, "big"), _REPLY_NUMBER.to_bytes(4, "big")
"""The message numbers as they are in frames."""


def encode_request(request_id: int, flags: int, deadline_ms: int, layer: int, data: bytes | memoryview) -> bytes:
    size = len(data)
    length = _REQUEST.size - LENGTH_BYTES + size + (-size & 3)
    head = _REQUEST.pack(length, _REQUEST_NUMBER, request_id, flags, deadline_ms, layer, size)
    return b"".join((head, data, PADDING[size & 3]))


def decode_request(frame: Frame) -> tuple[int, int, int, int, bytes]:
    """Id, flags, deadline, layer and data. Raises `WireError`."""
    if len(frame) < _REQUEST.size:
        raise WireError("Request: message truncated")
    length, number, request_id, flags, deadline_ms, layer, size = _REQUEST.unpack_from(frame)
    if number != _REQUEST_NUMBER or length != len(frame) - LENGTH_BYTES:
        raise WireError("Request: wrong number or length")
    return request_id, flags, deadline_ms, layer, _part(frame, _REQUEST.size, size)


def encode_reply(request_id: int, status: RequestStatus, flags: int, data: bytes | memoryview) -> bytes:
    size = len(data)
    head = _REPLY.pack(_REPLY.size - LENGTH_BYTES + size + (-size & 3), _REPLY_NUMBER, request_id, status, flags, size)
    return b"".join((head, data, PADDING[size & 3]))


def decode_reply(frame: Frame) -> tuple[int, RequestStatus, int, bytes]:
    """Id, status, flags and data. Raises `WireError`."""
    if len(frame) < _REPLY.size:
        raise WireError("Reply: message truncated")
    length, number, request_id, status, flags, size = _REPLY.unpack_from(frame)
    if number != _REPLY_NUMBER or length != len(frame) - LENGTH_BYTES:
        raise WireError("Reply: wrong number or length")
    if status >= len(_STATUSES):
        raise WireError(f"Reply: {status} is not a RequestStatus")
    return request_id, _STATUSES[status], flags, _part(frame, _REPLY.size, size)


def _part(frame: Frame, start: int, size: int) -> bytes:
    end = start + size
    if size > PART_BYTES_MAX or end + (-size & 3) != len(frame):
        raise WireError(f"part of {size} bytes: too large, or not the size of the frame")
    if size & 3 and frame[end:] != PADDING[size & 3]:
        raise WireError("padding is nonzero")
    return bytes(memoryview(frame)[start:end])


assert HEAD.size == 2 * LENGTH_BYTES  # both layouts begin with it
