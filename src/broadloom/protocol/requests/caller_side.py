"""`CallerSide`: the requests of this peer on one direct connection, pipelined within the limits of the callee."""

from typing import TYPE_CHECKING

from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind, OutgoingRequest, RequestState
from broadloom.protocol.requests.parts import PartSender
from broadloom.wire import Frame, WireError, encode
from broadloom.wire.direct_messages import (
    DEADLINE_MS_MAX,
    MORE,
    REQUEST_ID_MAX,
    Cancel,
    RequestStatus,
    Tell,
    decode_reply,
    encode_request,
)
from broadloom.wire.fields import PART_BYTES_MAX

if TYPE_CHECKING:
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.requests.direct_connection import DirectConnection

TEXT_BYTES_MAX = 1024
"""Text of a refusal that is kept."""


class CallerSide:
    def __init__(self, peer: "Peer", connection: "DirectConnection", inflight_max: int, bytes_max: int) -> None:
        self._peer = peer
        self._requests = peer.requests
        self._connection = connection
        self._inflight_max = inflight_max
        self._bytes_max = bytes_max
        self._last_id = 0
        self._open: dict[int, OutgoingRequest] = {}
        """Requests that were sent and not answered."""
        self._open_bytes = 0
        self._reply_bytes = 0
        """Of replies that are not complete."""
        self._sending: dict[OutgoingRequest, PartSender] = {}
        """Requests, and at most one one-way message, of which parts are still to be sent."""
        self._tell: OutgoingRequest | None = None
        """The one-way message that is being sent in parts."""

    @property
    def has_open_requests(self) -> bool:
        return bool(self._open)

    @property
    def is_sending(self) -> bool:
        """Whether parts of a request or one-way message are still to be sent."""
        return bool(self._sending)

    @property
    def has_used_all_ids(self) -> bool:
        return self._last_id >= REQUEST_ID_MAX

    def try_send(self, request: OutgoingRequest) -> bool:
        """Send the request, unless there is no room for it or the quota does not allow it now."""
        size = len(request.data)
        if size > self._bytes_max:
            text = f"{size:,} bytes; it accepts {self._bytes_max:,}"
            self._requests.end_queued(request, Outcome(OutcomeKind.TOO_LARGE, text=text))
            return True
        if request.is_tell:
            return self._try_tell(request)
        if len(self._open) >= self._inflight_max or self._open_bytes + size > self._bytes_max:
            return False
        if self._requests.pacer is not None and not self._requests.pacer.take():
            return False
        self._last_id += 1
        request.id = self._last_id
        request.state = RequestState.SENT
        request.connection = self._connection
        self._open[request.id] = request
        self._open_bytes += size
        if size <= PART_BYTES_MAX:
            self._connection.send(self._encode(request, request.data, 0))
        else:
            self._send_in_parts(request)
        return True

    def _encode(self, request: OutgoingRequest, part: bytes | memoryview, more: int) -> bytes:
        remaining_s = request.deadline_at - self._peer.runtime.now()
        deadline_ms = max(1, min(int(remaining_s * 1000), DEADLINE_MS_MAX))
        return encode_request(request.id, request.flags | more, deadline_ms, request.layer, part)

    def _send_in_parts(self, request: OutgoingRequest) -> None:
        def encode_part(part: memoryview, more: int) -> bytes:
            if request.is_tell:
                return encode(Tell(request.layer, request.flags | more, bytes(part)))
            return self._encode(request, part, more)

        sender = self._sending[request] = PartSender(request.data, encode_part, lambda: self._on_sent(request))
        self._connection.parts.add(sender)

    def _on_sent(self, request: OutgoingRequest) -> None:
        del self._sending[request]
        if request.is_tell:
            self._tell = None
            if request.state is RequestState.SENT:
                request.end(Outcome(OutcomeKind.REPLIED, sent=True))
        self._connection.on_room()

    def _try_tell(self, request: OutgoingRequest) -> bool:
        if self._tell is not None or (self._requests.pacer is not None and not self._requests.pacer.take()):
            return False
        request.state = RequestState.SENT
        if len(request.data) <= PART_BYTES_MAX:
            self._connection.send(encode(Tell(request.layer, request.flags, request.data)))
            request.end(Outcome(OutcomeKind.REPLIED, sent=True))
        else:
            self._tell = request
            self._send_in_parts(request)
        return True

    def cancel(self, request: OutgoingRequest) -> None:
        """The caller no longer waits for a request that was sent. The rest of a one-way message is sent all the same:
        half of it is of no use."""
        if not request.is_tell:
            self._remove(request)
            self._connection.send(encode(Cancel(request.id)))
            self._connection.on_canceled()
            self._connection.on_room()

    def _remove(self, request: OutgoingRequest) -> bool:
        """Whether parts of it were still to be sent."""
        del self._open[request.id]
        self._open_bytes -= len(request.data)
        if request.parts is not None:
            self._reply_bytes -= sum(map(len, request.parts))
        sender = self._sending.pop(request, None) if self._sending else None
        if sender is not None:
            self._connection.parts.remove(sender)
        return sender is not None

    def on_reply(self, frame: Frame) -> None:
        request_id, status, flags, data = decode_reply(frame)
        request = self._open.get(request_id)
        if request is None:
            if request_id > self._last_id:
                raise WireError(f"reply to request {request_id}, which was not sent")
            self._peer.counters.late_replies += 1
            return
        if flags & MORE or request.parts is not None:
            parts = request.parts = request.parts or []
            parts.append(data)
            self._reply_bytes += len(data)
            if self._reply_bytes > self._peer.settings.direct_request_bytes_max:
                raise WireError("replies are larger than allowed")
            if flags & MORE:
                return
            data = b"".join(parts)
        if self._remove(request):
            self._connection.send(encode(Cancel(request_id)))  # it was answered before all parts were sent
        if status is RequestStatus.OK:
            request.end(Outcome(OutcomeKind.REPLIED, data, sent=True))
        else:
            text = data[:TEXT_BYTES_MAX].decode(errors="replace")
            request.end(Outcome(OutcomeKind.REFUSED, text=text, sent=True, status=status))
        self._connection.on_room()

    def end(self, text: str) -> None:
        """The connection is lost."""
        lost = list(self._open.values())
        if self._tell is not None and self._tell.state is RequestState.SENT:
            lost.append(self._tell)
        self._open.clear()
        self._sending.clear()
        for request in lost:
            request.connection = None
        for request in lost:
            if request.state is not RequestState.ENDED:  # the outcome of one may be a reason to give up another
                request.end(Outcome(OutcomeKind.GONE, text=text, sent=True))
