"""A direct request as its handler sees it, and the reply as the caller sees it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broadloom.protocol.events import payload_bytes
from broadloom.protocol.identity import Identity
from broadloom.protocol.requests.incoming import IncomingRequest
from broadloom.wire import PeerId
from broadloom.wire.direct_messages import HEADED, RequestStatus
from broadloom.wire.message_headers import split_headers

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


class DirectRequest:
    """A request, or a one-way message, of another member. The handler returns the reply, or calls `reply`."""

    __slots__ = ("_incoming", "_now_s", "data", "headers")

    def __init__(self, incoming: IncomingRequest, now_s: float) -> None:
        """Raises `WireError` if the headers are malformed."""
        self._incoming = incoming
        self._now_s = now_s
        self.headers: Mapping[str, str] = {}
        self.data = incoming.data
        if incoming.flags & HEADED:
            envelope, self.data = split_headers(incoming.data)
            self.headers = envelope.headers.user_headers

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

    def reply(self, data: bytes) -> None:
        """Reply before the handler returns, which then returns None. Raises `AlreadyRepliedError`."""
        self._incoming.reply(payload_bytes(data, REPLY_REMEDY))

    def refuse(self, text: str = "") -> None:
        """Refuse before the handler returns: the caller gets `RefusedError` with this text."""
        self._incoming.refuse(RequestStatus.REFUSED, text)
