"""The messages of the switch as bytes: XDR, as on links (`broadloom.wire`), behind a header of their own.

A message starts with four bytes: `B`, `S`, the version and the message number. Broadcasts: `Announcement`,
`ObserverCopy`. Direct requests: `RecordsRequest`, `HandlerCopy`, `QueueLengthsRequest`. One-way messages: `Progress`,
`QueuedResult`. Everything is validated while it is decoded.
"""

import struct
from enum import IntEnum
from functools import lru_cache
from typing import Annotated, Any, ClassVar, NamedTuple

from broadloom.switch import settings
from broadloom.switch.model import (
    Disposition,
    FailureReason,
    IfLost,
    MessageClass,
    MessageId,
    MessageState,
    Pattern,
    Recipient,
    Scope,
    SwitchMessage,
)
from broadloom.wire import PeerId, xdr
from broadloom.wire.fields import RECORD_SIGNATURE_BYTES_MAX, Bool, Hyper
from broadloom.wire.layer_codec import LayerCodec, LayerMessage, compressed, decompressed, layer_message
from broadloom.wire.xdr import Buffer, WireError, Xdr, structure

VERSION = 1
RANK_MAX = 1_000_000
RANK_OFFSET = 1 << 31
"""Ranks may be negative; XDR numbers here are not."""
ENVELOPES_CACHED = 512
"""At most 5 KiB each."""


_CODEC: "LayerCodec[SwitchWireMessage]" = LayerCodec(b"BS", VERSION, "message of the switch")


class SwitchWireMessage(LayerMessage):
    """Base class of all messages of the switch."""

    __slots__ = ()
    codec: ClassVar = _CODEC


encode, decode = _CODEC.encode, _CODEC.decode


# -- fields

_NAME = xdr.string(settings.NAME_BYTES_MAX)
_NAMES = xdr.array(_NAME, settings.NAMES_MAX)
_TEXT = xdr.string(settings.TEXT_BYTES_MAX)
_DATA = xdr.opaque(settings.DATA_BYTES_MAX)
_BODY = xdr.opaque(settings.RECORD_BYTES_MAX)
_SIGNATURE = xdr.opaque(RECORD_SIGNATURE_BYTES_MAX)
_PEER_ID = xdr.optional(xdr.HYPER)
_REASON = xdr.optional(xdr.enum(FailureReason))


class SignedRegistration(NamedTuple):
    """The registration of one program, with its signature."""

    peer_id: PeerId
    body: bytes
    signature: bytes


class JoinedFile(NamedTuple):
    """A file that a program works on, and since when."""

    file: str
    joined_at_ms: int


class RecordBody(NamedTuple):
    """What a program has registered. The highest version counts."""

    version: int
    session: str
    program: str
    is_closed: bool
    """The program no longer runs a switch."""
    patterns: tuple[Pattern, ...]
    files: tuple[JoinedFile, ...]


class Verdict(IntEnum):
    """What became of the copy for a handler."""

    HANDLED = 1
    FAILED = 2
    """The handler refused or failed: the end of the request."""
    DECLINED = 3
    """Not handled here: the next one is asked. The reason says why."""
    QUEUED = 4
    """Kept on disk; the result of a request follows as `QueuedResult`."""


class Result(NamedTuple):
    """What became of a `HandlerCopy`."""

    verdict: Verdict
    reason: FailureReason | None = None
    text: str = ""
    handler: PeerId | None = None
    handler_program: str = ""
    data: bytes = b""


def _pack_pattern(value: Pattern, out: list[bytes]) -> None:
    numbers = (
        value.is_handler | (value.files is not None) << 1,
        (value.message_class or 0) | (value.scope or 0) << 8 | (value.state or 0) << 16 | value.disposition << 24,
        value.rank + RANK_OFFSET,
    )
    out.append(_PATTERN_HEAD.pack(*numbers))
    _NAME.pack(value.program, out)
    _NAMES.pack(value.operations, out)
    _NAMES.pack(value.files or (), out)


def _unpack_pattern(buffer: Buffer, position: int) -> tuple[Pattern, int]:
    flags, enums, rank = _PATTERN_HEAD.unpack_from(buffer, position)
    program, position = _NAME.unpack(buffer, position + _PATTERN_HEAD.size)
    operations, position = _NAMES.unpack(buffer, position)
    files, position = _NAMES.unpack(buffer, position)
    rank -= RANK_OFFSET
    if flags > 3 or (files and not flags & 2) or abs(rank) > RANK_MAX:
        raise WireError("invalid pattern")
    try:
        message_class = MessageClass(enums & 0xFF) if enums & 0xFF else None
        scope = Scope(enums >> 8 & 0xFF) if enums >> 8 & 0xFF else None
        state = MessageState(enums >> 16 & 0xFF) if enums >> 16 & 0xFF else None
        disposition = Disposition(enums >> 24)
    except ValueError as problem:
        raise WireError(str(problem)) from None
    files = files if flags & 2 else None
    pattern = Pattern(bool(flags & 1), operations, message_class, scope, files, state, rank, program, disposition)
    return pattern, position


_PATTERN_HEAD = struct.Struct(">III")
_PATTERNS = xdr.array(Xdr(_pack_pattern, _unpack_pattern), settings.PATTERNS_MAX)
_JOINED = xdr.array(structure(JoinedFile, _NAME, xdr.HYPER), settings.PATTERNS_MAX)
_RECORD = structure(RecordBody, xdr.HYPER, _NAME, _NAME, xdr.BOOL, _PATTERNS, _JOINED)
_SIGNED = structure(SignedRegistration, xdr.HYPER, _BODY, _SIGNATURE)
_RESULT_HEAD = structure(lambda *values: values, xdr.enum(Verdict), _REASON, _TEXT, _PEER_ID, _NAME)
_RESULT_HEAD_BYTES_MAX = settings.TEXT_BYTES_MAX + settings.NAME_BYTES_MAX + 32
_ENVELOPE_HEAD = struct.Struct(">7I")
_ENVELOPE_BYTES_MAX = _ENVELOPE_HEAD.size + 4 * (4 + settings.NAME_BYTES_MAX)
_MESSAGE_HEAD = struct.Struct(">QQ")
_WANTS_PROGRESS, _HAS_RESULT = 1, 2
_MESSAGE_RESULT = structure(lambda *values: values, _PEER_ID, _NAME, _REASON, _TEXT, _DATA)

# What many messages have in common is encoded and decoded once: the names of a message, and the handler of a result.


@lru_cache(ENVELOPES_CACHED)
def _pack_envelope(numbers: tuple[int, ...], *names: str) -> bytes:
    """Everything but the id and the data."""
    out = [_ENVELOPE_HEAD.pack(*numbers)]
    for name in names:
        _NAME.pack(name, out)
    return b"".join(out)


@lru_cache(ENVELOPES_CACHED)
def _unpack_envelope(encoded: bytes) -> tuple[Any, ...]:
    """The fields of `SwitchMessage` in their order, without id and data, and whether a result follows."""
    message_class, scope, recipient, state, disposition, if_lost, flags = _ENVELOPE_HEAD.unpack_from(encoded)
    position, names = _ENVELOPE_HEAD.size, []
    for _ in range(4):
        name, position = _NAME.unpack(encoded, position)
        names.append(name)
    if flags > _WANTS_PROGRESS | _HAS_RESULT or position != len(encoded):
        raise WireError("invalid envelope of a message")
    session, file, operation, sender_program = names
    try:
        before = (MessageClass(message_class), Scope(scope), Recipient(recipient), session, file, operation)
        after = (
            sender_program,
            MessageState(state),
            Disposition(disposition),
            IfLost(if_lost),
            bool(flags & _WANTS_PROGRESS),
        )
    except ValueError as problem:
        raise WireError(str(problem)) from None
    return before, after, bool(flags & _HAS_RESULT)


def _pack_message(message: SwitchMessage, out: list[bytes], recipient: Recipient | None = None) -> None:
    has_result = message.handler is not None or message.reason is not None
    numbers = (
        message.message_class,
        message.scope,
        recipient or message.recipient,
        message.state,
        message.disposition,
        message.if_lost,
        message.wants_progress * _WANTS_PROGRESS | has_result * _HAS_RESULT,
    )
    out.append(_MESSAGE_HEAD.pack(*message.id))
    envelope = _pack_envelope(numbers, message.session, message.file, message.operation, message.sender_program)
    xdr.pack_opaque(envelope, out)
    _DATA.pack(message.data, out)
    if has_result:
        result = (message.handler, message.handler_program, message.reason, message.failure_text, message.reply)
        _MESSAGE_RESULT.pack(result, out)


def _unpack_message(buffer: Buffer, position: int) -> tuple[SwitchMessage, int]:
    peer_id, counter = _MESSAGE_HEAD.unpack_from(buffer, position)
    envelope, position = xdr.unpack_opaque(buffer, position + _MESSAGE_HEAD.size, _ENVELOPE_BYTES_MAX)
    before, after, has_result = _unpack_envelope(envelope)
    data, position = _DATA.unpack(buffer, position)
    result: tuple[Any, ...] = ()
    if has_result:
        result, position = _MESSAGE_RESULT.unpack(buffer, position)
    return SwitchMessage(*(MessageId(peer_id, counter), *before, data, *after, *result)), position


@lru_cache(ENVELOPES_CACHED)
def _pack_result_head(*values: Any) -> bytes:
    out: list[bytes] = []
    _RESULT_HEAD.pack(values, out)
    return b"".join(out)


@lru_cache(ENVELOPES_CACHED)
def _unpack_result_head(encoded: bytes) -> tuple[Any, ...]:
    values, position = _RESULT_HEAD.unpack(encoded, 0)
    if position != len(encoded):
        raise WireError("invalid head of a result")
    return values  # type: ignore[no-any-return]


def _pack_result(result: Result, out: list[bytes]) -> None:
    xdr.pack_opaque(_pack_result_head(*result[:-1]), out)
    _DATA.pack(result.data, out)


def _unpack_result(buffer: Buffer, position: int) -> tuple[Result, int]:
    head, position = xdr.unpack_opaque(buffer, position, _RESULT_HEAD_BYTES_MAX)
    data, position = _DATA.unpack(buffer, position)
    return Result(*(*_unpack_result_head(head), data)), position


_RESULT = Xdr(_pack_result, _unpack_result)
_MESSAGE = Xdr(_pack_message, _unpack_message)

Message = Annotated[SwitchMessage, _MESSAGE]
ResultField = Annotated[Result, _RESULT]
Name = Annotated[str, _NAME]


def pack_record(record: RecordBody) -> bytes:
    return compressed(_RECORD, record)


def unpack_record(body: bytes) -> RecordBody:
    """Raises `WireError`."""
    return decompressed(_RECORD, body, settings.RECORD_PLAIN_BYTES_MAX, "registration")  # type: ignore[no-any-return]


# -- messages


@layer_message(1)
class Announcement(SwitchWireMessage):
    """The sender's registration. Causes: receivers replace the one they have. If it is the first one, programs that
    have started a moment ago announce theirs again."""

    is_first: Bool
    body: Annotated[bytes, _BODY]
    signature: Annotated[bytes, _SIGNATURE]


@layer_message(2)
class RecordsRequest(SwitchWireMessage):
    """Direct request. Causes: the reply is `Records`."""


@layer_message(3)
class Records(SwitchWireMessage):
    """All registrations that the sender knows, its own first."""

    records: Annotated[tuple[SignedRegistration, ...], xdr.array(_SIGNED, settings.RECORDS_MAX)]


@layer_message(4)
class HandlerCopy(SwitchWireMessage):
    """Direct request: the one copy for a handler. Causes: it is handled, declined, or kept for a program that does not
    run. The reply is `HandlerResult`."""

    message: Message
    program: Name
    """The program type for which the receiver offered to start or queue; empty if it handles the message itself."""
    timeout_ms: Hyper


@layer_message(5)
class HandlerResult(SwitchWireMessage):
    result: ResultField


@layer_message(6)
class Progress(SwitchWireMessage):
    """One-way message to the sender of a request that wants to know. Causes: a step in `follow`."""

    counter: Hyper
    state: Annotated[MessageState, xdr.enum(MessageState)]
    handler_program: Name


@layer_message(7)
class QueuedResult(SwitchWireMessage):
    """One-way message: the end of a request that was queued. Causes: the request of the receiver with this number ends,
    if the sender of this message holds it."""

    counter: Hyper
    result: ResultField


@layer_message(8)
class ObserverCopy(SwitchWireMessage):
    """Broadcast by the sender of a message, in each state that can be observed. Causes: observers get it."""

    message: Message


@layer_message(9)
class QueueLengthsRequest(SwitchWireMessage):
    """Direct request. Causes: the reply is `QueueLengths`."""


class QueueLength(NamedTuple):
    """Messages that wait for programs of one type."""

    program: str
    waiting_count: int


@layer_message(10)
class QueueLengths(SwitchWireMessage):
    """How many messages wait at the sender of this, for each program type that it offers."""

    lengths: Annotated[tuple[QueueLength, ...], xdr.array(structure(QueueLength, _NAME, xdr.HYPER), settings.NAMES_MAX)]


def handler_copy(message: SwitchMessage, program: str, timeout_s: float) -> bytes:
    """As `encode`, with the recipient of such a copy."""
    out = [_CODEC.head(HandlerCopy.number)]
    _pack_message(message, out, Recipient.HANDLER)
    _NAME.pack(program, out)
    xdr.HYPER.pack(max(0, int(timeout_s * 1000)), out)
    return b"".join(out)


def decode_result(data: bytes) -> Result:
    """The result in a reply; a malformed one counts as a refusal."""
    try:
        message = decode(data)
    except WireError as problem:
        return Result(Verdict.FAILED, FailureReason.REFUSED, f"malformed reply: {problem}")
    if not isinstance(message, HandlerResult):
        return Result(Verdict.FAILED, FailureReason.REFUSED, "malformed reply: not a result")
    return message.result
