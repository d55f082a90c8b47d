"""The interface of a filter that every outgoing message passes, implemented by `broadloom.rules`.

Nothing is sent before the filter has returned. Each way out makes an `Outgoing` of its message, and sends the result:
broadcasts, files, direct requests, one-way messages and replies. Layers that keep and repeat what they send (groups,
mailboxes, the switch, agreed order) filter what the application gives them, before they make messages of it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from broadloom.errors import NotSentError
from broadloom.wire.broadcast_frame import Priority
from broadloom.wire.file_payload import decode_file, encode_file
from broadloom.wire.identity_messages import IDENTITY_KIND
from broadloom.wire.message_headers import (
    Envelope,
    Headers,
    checked_headers,
    encode_headers,
    split_headers,
    with_headers,
)
from broadloom.wire.payload_kind import CONTENT_MASK, HAS_HEADERS, LAYER_SHIFT, PayloadKind, layer_mark

if TYPE_CHECKING:
    from broadloom.channel.channel import Channel

PACKING = "sending"
"""What stands for the rule in an error that no single rule has caused."""


class Way(StrEnum):
    """How a message leaves."""

    BROADCAST = "broadcast"
    FILE = "file"
    REQUEST = "request"
    TELL = "tell"
    REPLY = "reply"
    NOTICE = "notice"
    """A notice of the switch."""
    POST = "post"
    """A message posted to a group, or the description of a group."""
    VALUE = "value"
    """Put into a mailbox."""
    LETTER = "letter"
    """Posted to a mailbox."""
    ENTRY = "entry"
    """Submitted to an ordered conversation."""
    STATE = "state"
    """Served to a newcomer."""

    @property
    def has_envelope(self) -> bool:
        """Whether headers and encodings can be sent with such a message of an application."""
        return self in (Way.BROADCAST, Way.FILE, Way.REQUEST, Way.TELL)


@dataclass(slots=True)
class Outgoing:
    """A message before it is sent, as rules see and change it."""

    data: bytes
    way: Way = Way.BROADCAST
    channel: str = ""
    layer: str = ""
    """The mark of the layer that sends it; empty for the application."""
    topic: str | None = None
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    priority: int = Priority.NORMAL
    ttl_s: float | None = None
    file_name: str = ""
    name: str = ""
    """Description of the group; name of the mailbox, the operation, the conversation or the state."""
    receiver: tuple[str, ...] = ()
    """Name and peer id of the receiver of a direct message."""
    sender: str = ""
    """The name of this program: the one on its ticket, or the one it chose."""
    role: str = ""
    """The role on its ticket."""
    encodings: tuple[str, ...] = ()
    """What was done to the data so far, for receivers that undo it."""
    forwarded_from: tuple[str, ...] = ()
    is_released: bool = False
    """It was held before, and has been released."""
    has_envelope: bool = True
    """Whether headers and encodings can be sent with it. Posts, replies and identifications have none."""

    @property
    def content(self) -> bytes:
        """What encodings are applied to: of a file, name and hash as well."""
        is_plain_file = self.way is Way.FILE and not self.encodings
        return encode_file(self.file_name, self.data) if is_plain_file else self.data


class OutgoingFilter(Protocol):
    """What `connect(rules=…)` takes. The result is the same object if nothing was changed."""

    def add_channel(self, channel: "Channel") -> None:
        """Called when a channel with this filter was joined."""

    async def apply(self, out: Outgoing, channel: "Channel") -> Outgoing:
        """Raises `NotSentError`."""

    def apply_nowait(self, out: Outgoing, channel: "Channel") -> Outgoing:
        """The same without waiting. Raises `NotSentError` if a rule would have to wait."""


def unpack_broadcast(data: bytes, kind: int, priority: int, ttl_s: float | None, origin: Outgoing) -> Outgoing:
    """A broadcast as it goes to `pack_broadcast`. `origin` has the fields that are the same for the whole channel."""
    envelope = Envelope(Headers(), 0)
    if kind & HAS_HEADERS:
        envelope, data = split_headers(data)
    headers = envelope.headers
    way, file_name = Way.BROADCAST, ""
    if kind & CONTENT_MASK == PayloadKind.FILE and not headers.encodings:
        way, (file_name, data) = Way.FILE, decode_file(data)
    return replace(
        origin,
        data=data,
        way=way,
        layer=layer_mark(kind) if kind >> LAYER_SHIFT else "",
        topic=headers.topic,
        content_type=headers.content_type,
        headers=headers.user_headers,
        priority=priority,
        ttl_s=ttl_s,
        file_name=file_name,
        encodings=headers.encodings,
        forwarded_from=headers.forwarded_from,
        has_envelope=kind != IDENTITY_KIND,
    )


def pack_broadcast(out: Outgoing, kind: int) -> tuple[bytes, int, int, float | None]:
    """Data, kind, priority and time to live. Raises `NotSentError` if the rules made something that cannot be sent."""
    data, has_headers = pack_data(out)
    if out.way is Way.FILE:
        kind |= PayloadKind.FILE
    kind = kind | HAS_HEADERS if has_headers else kind & ~HAS_HEADERS
    return data, kind, out.priority, out.ttl_s


def pack_data(out: Outgoing) -> tuple[bytes, bool]:
    """The payload, and whether it begins with headers."""
    extra = bool(out.encodings or out.forwarded_from)
    if not (extra or out.topic is not None or out.content_type is not None or out.headers):
        return out.content, False
    if not out.has_envelope:
        raise NotSentError(PACKING, f"a {out.way} cannot carry headers or encodings, which a rule added")
    try:
        checked = checked_headers(out.topic, out.content_type, out.headers)
        block = encode_headers(*checked, out.encodings, out.forwarded_from)
    except (TypeError, ValueError) as problem:
        raise NotSentError(PACKING, f"a rule made headers that cannot be sent: {problem}") from None
    return with_headers(block, time.time_ns() // 1_000_000, out.content), True
