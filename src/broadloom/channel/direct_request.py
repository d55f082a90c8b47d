"""A direct request as its handler sees it, and the reply as the caller sees it."""

import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from broadloom.channel.encodings import undo_encodings
from broadloom.channel.outgoing import PACKING, Outgoing, OutgoingFilter, Way, pack_data
from broadloom.errors import NotSentError
from broadloom.protocol.events import payload_bytes
from broadloom.protocol.identity import Identity
from broadloom.protocol.requests.incoming import IncomingRequest
from broadloom.wire import PeerId, WireError
from broadloom.wire.direct_messages import HEADED, RequestStatus
from broadloom.wire.file_payload import File, decode_file
from broadloom.wire.message_headers import Envelope, split_headers
from broadloom.wire.payload_kind import LAYER_SHIFT, layer_mark

if TYPE_CHECKING:
    from broadloom.channel.channel import Channel
    from broadloom.channel.requester import HasPeerId

FILE_CONTENT_TYPE = "application/vnd.broadloom.file"
"""A file that a rule of the sender has sent to one member."""
REPLY_REMEDY = "text.encode() or json.dumps(value).encode()"


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a request."""

    peer_id: PeerId
    data: bytes

    @property
    def text(self) -> str:
        """The data as UTF-8 text. Raises `ValueError` if it is not."""
        return self.data.decode()

    def json(self) -> Any:
        """The data parsed as JSON. Raises `ValueError` if it is not."""
        return json.loads(self.data)


class HandlerContext:
    """What handling a request needs of the channel, to which it refers only weakly: keys, and the filter of replies."""

    def __init__(self, channel: "Channel", layer: int, *, has_filter: bool) -> None:
        self._channel = weakref.ref(channel)
        self._layer = layer_mark(layer << LAYER_SHIFT) if layer else ""
        self.has_filter = has_filter

    def undo(self, envelope: Envelope, data: bytes) -> tuple[Envelope, bytes]:
        """Raises `WireError`."""
        channel = self._channel()
        if channel is None:
            raise WireError("the channel was left")
        envelope, data = undo_encodings(envelope, data, channel._private_keys, channel._decompressed_bytes_max)
        if envelope.remaining:
            raise WireError("the request is encrypted for others")
        return envelope, data

    async def filtered(self, data: bytes, incoming: "HasPeerId") -> bytes:
        """Raises `NotSentError`."""
        channel, out_filter, out = self._prepared(data, incoming)
        return pack_data(await out_filter.apply(out, channel))[0]

    def filtered_nowait(self, data: bytes, incoming: "HasPeerId") -> bytes:
        """The same. Raises `NotSentError` if a rule would have to wait."""
        channel, out_filter, out = self._prepared(data, incoming)
        return pack_data(out_filter.apply_nowait(out, channel))[0]

    def filtered_text(self, text: str, incoming: "HasPeerId") -> str:
        """The text of a refusal; empty if a rule does not let it out."""
        if not self.has_filter or not text:
            return text
        try:
            return self.filtered_nowait(text.encode(), incoming).decode(errors="replace")
        except NotSentError:
            return ""

    def _prepared(self, data: bytes, incoming: "HasPeerId") -> "tuple[Channel, OutgoingFilter, Outgoing]":
        channel = self._channel()
        if channel is None or channel._filter is None:
            raise NotSentError(PACKING, "the channel was left")
        receiver = channel._names_of(incoming.peer_id)
        out = replace(
            channel._origin(), data=data, way=Way.REPLY, layer=self._layer, receiver=receiver, has_envelope=False
        )
        return channel, channel._filter, out


class DirectRequest:
    """A request, or a one-way message, of another member. The handler returns the reply, or calls `reply`."""

    __slots__ = ("_context", "_incoming", "_now_s", "content_type", "data", "headers")

    def __init__(self, incoming: IncomingRequest, now_s: float, context: HandlerContext) -> None:
        """Raises `WireError` if the headers are malformed, or if it is encrypted for others."""
        self._context = context
        self._incoming = incoming
        self._now_s = now_s
        self.headers: Mapping[str, str] = {}
        self.content_type: str | None = None
        self.data = incoming.data
        if incoming.flags & HEADED:
            envelope, self.data = split_headers(incoming.data)
            if envelope.headers.encodings:
                envelope, self.data = context.undo(envelope, self.data)
            self.headers = envelope.headers.user_headers
            self.content_type = envelope.headers.content_type

    @property
    def peer_id(self) -> PeerId:
        """The id of the caller."""
        return PeerId(self._incoming.peer_id)

    @property
    def identity(self) -> Identity | None:
        """What the certificate of the caller states: its name and role if it has a ticket. None without TLS."""
        return self._incoming.identity

    @property
    def is_proven(self) -> bool:
        """Whether the id of the caller is proven by its certificate. Without TLS it is only a claim."""
        return self._incoming.identity is not None

    @property
    def expects_reply(self) -> bool:
        """False for a one-way message (`channel.tell`), whose reply would be ignored."""
        return self._incoming.expects_reply

    @property
    def timeout_s(self) -> float | None:
        """How long the caller waited for a reply when the handler was called; None for a one-way message."""
        return max(0.0, self._incoming.deadline_at - self._now_s) if self.expects_reply else None

    @property
    def text(self) -> str:
        """The data as UTF-8 text. Raises `ValueError` if it is not."""
        return self.data.decode()

    def json(self) -> Any:
        """The data parsed as JSON. Raises `ValueError` if it is not."""
        return json.loads(self.data)

    @property
    def file(self) -> File | None:
        """The file, if this is one that a rule of the sender sends (`send`). Raises `ValueError` if it is damaged."""
        return decode_file(self.data) if self.content_type == FILE_CONTENT_TYPE else None

    def reply(self, data: bytes) -> None:
        """Reply before the handler returns, which then returns None. Raises `AlreadyRepliedError`, or `NotSentError` if
        a rule refuses the reply or would have to wait."""
        data = payload_bytes(data, REPLY_REMEDY)
        self._incoming.reply(self._context.filtered_nowait(data, self._incoming) if self._context.has_filter else data)

    def refuse(self, text: str = "") -> None:
        """Refuse before the handler returns: the caller gets `RefusedError` with this text."""
        self._incoming.refuse(RequestStatus.REFUSED, self._context.filtered_text(text, self._incoming))
