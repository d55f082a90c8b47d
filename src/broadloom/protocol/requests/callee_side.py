"""`CalleeSide`: the requests and one-way messages of the other side of a direct connection, and our replies.

A caller that exceeds the limits that we announced is disconnected (`WireError`). One-way messages have no limit that
the sender knows: if too many wait for a handler, the connection is not read.
"""

from typing import TYPE_CHECKING

from broadloom.protocol.requests.incoming import TELL_ID, IncomingRequest, IncomingState
from broadloom.protocol.requests.parts import Partial, PartSender
from broadloom.wire import Frame, PeerId, WireError
from broadloom.wire.direct_messages import MORE, Cancel, RequestStatus, Tell, decode_request, encode_reply
from broadloom.wire.fields import PART_BYTES_MAX

if TYPE_CHECKING:
    from broadloom.protocol.identity import Identity
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.requests.direct_connection import DirectConnection


class CalleeSide:
    def __init__(self, peer: "Peer", connection: "DirectConnection", reply_bytes_max: int) -> None:
        self._peer = peer
        self._settings = peer.settings
        self._requests = peer.requests
        self._connection = connection
        self._reply_bytes_max = reply_bytes_max
        """Replies of which only a part was sent, as the caller allows."""
        self._last_id = 0
        self._open: dict[int, IncomingRequest] = {}
        """Requests that were not answered."""
        self._partial: dict[int, Partial] = {}
        self._discarded: dict[int, None] = {}
        """Requests that were answered before all their parts had arrived."""
        self._bytes = 0
        """Of the requests above."""
        self._tells: dict[IncomingRequest, None] = {}
        """One-way messages that wait for a handler."""
        self._partial_tell: Partial | None = None
        self._discards_tell = False
        self._tell_bytes = 0
        self._replies: dict[int, PartSender] = {}
        """Replies of which parts are still to be sent; those that have begun come first."""
        self._begun: dict[int, None] = {}
        self._begun_bytes = 0

    @property
    def peer_id(self) -> PeerId:
        return self._connection.peer_id

    @property
    def identity(self) -> "Identity | None":
        return self._connection.identity

    @property
    def has_open_requests(self) -> bool:
        return bool(self._open or self._partial or self._tells)

    @property
    def is_idle(self) -> bool:
        return not (self.has_open_requests or self._replies or self._partial_tell is not None)

    # -- requests

    def on_request(self, frame: Frame) -> None:
        request_id, flags, deadline_ms, layer, data = decode_request(frame)
        partial = self._partial.get(request_id)
        if partial is None:
            if request_id in self._discarded:
                if not flags & MORE:
                    del self._discarded[request_id]
                return
            if request_id <= self._last_id:
                raise WireError(f"request id {request_id} was used before")
            self._last_id = request_id
            if len(self._open) + len(self._partial) >= self._settings.direct_inflight_max:
                raise WireError("more requests at a time than allowed")
        if self._bytes + len(data) > self._settings.direct_request_bytes_max:
            raise WireError("requests are larger than allowed")
        if self._requests.held_bytes + len(data) > self._settings.direct_bytes_max:
            self._refuse_for_size(request_id, flags)
            return
        self._bytes += len(data)
        self._requests.held_bytes += len(data)
        deadline_at = self._peer.runtime.now() + deadline_ms / 1000
        if partial is not None:
            partial.add(data)
            if flags & MORE:
                return
            del self._partial[request_id]
            data, layer, flags, deadline_at = b"".join(partial.parts), partial.layer, partial.flags, partial.deadline_at
        elif flags & MORE:
            self._partial[request_id] = Partial(layer, flags, deadline_at, data)
            return
        request = IncomingRequest(self, request_id, layer, flags, data, deadline_at)
        self._open[request_id] = request
        self._requests.on_request(request)

    def _refuse_for_size(self, request_id: int, flags: int) -> None:
        if (partial := self._partial.pop(request_id, None)) is not None:
            self._release(partial.size)
        if flags & MORE:
            self._discarded[request_id] = None
        self._connection.send(encode_reply(request_id, RequestStatus.BUSY, 0, b"too many bytes wait here"))

    def _release(self, size: int) -> None:
        self._bytes -= size
        self._requests.held_bytes -= size

    def on_cancel(self, message: Cancel) -> None:
        self._discarded.pop(message.id, None)
        if (partial := self._partial.pop(message.id, None)) is not None:
            self._release(partial.size)
        elif (request := self._open.pop(message.id, None)) is not None:
            self._release(len(request.data))
            request.cancel()
        elif (sender := self._replies.get(message.id)) is not None:
            self._connection.parts.remove(sender)
            self._end_reply(message.id)
        self._connection.send_heartbeat()  # no reply follows that would show that this peer is alive

    # -- replies

    def send_reply(self, request: IncomingRequest, status: RequestStatus, data: bytes) -> None:
        if self._open.pop(request.id, None) is None:
            return
        self._release(len(request.data))
        if status is not RequestStatus.OK:
            data = data[:PART_BYTES_MAX]  # a text, of which the caller keeps less; only replies have parts
        if len(data) > PART_BYTES_MAX:
            if len(data) > self._reply_bytes_max:
                status, data = RequestStatus.TOO_LARGE, b"the reply has %d bytes" % len(data)
            elif self._requests.held_bytes + len(data) > self._settings.direct_bytes_max:
                status, data = RequestStatus.FAILED, b"too many replies wait to be sent"
            else:
                self._send_in_parts(request.id, data)
                return
        self._connection.send(encode_reply(request.id, status, 0, data))
        self._connection.check_closed()

    def _send_in_parts(self, request_id: int, data: bytes) -> None:
        def encode_part(part: memoryview, more: int) -> bytes:
            return encode_reply(request_id, RequestStatus.OK, more, part)

        self._requests.held_bytes += len(data)
        self._replies[request_id] = PartSender(data, encode_part, lambda: self._end_reply(request_id))
        self._begin_replies()

    def _begin_replies(self) -> None:
        """The caller holds the parts of what was begun: no more than it allows."""
        for request_id, sender in list(self._replies.items()):
            if request_id not in self._begun:
                if self._begun_bytes + sender.size > self._reply_bytes_max:
                    break
                self._begun[request_id] = None
                self._begun_bytes += sender.size
                self._connection.parts.add(sender)

    def _end_reply(self, request_id: int) -> None:
        """All parts were sent, or the caller no longer waits."""
        sender = self._replies.pop(request_id)
        self._requests.held_bytes -= sender.size
        if request_id in self._begun:
            del self._begun[request_id]
            self._begun_bytes -= sender.size
        self._begin_replies()
        self._connection.check_closed()

    # -- one-way messages

    def on_tell(self, message: Tell) -> None:
        data, layer, flags = message.data, message.layer, message.flags
        if self._tell_bytes + len(data) > self._settings.direct_request_bytes_max + self._settings.send_queue_bytes_max:
            raise WireError("one-way messages are larger than allowed")  # one read brings less than that
        if self._discards_tell or self._requests.held_bytes + len(data) > self._settings.direct_bytes_max:
            self._discard_tell(is_last=not flags & MORE)
            return
        self._tell_bytes += len(data)
        self._requests.held_bytes += len(data)
        partial = self._partial_tell
        if partial is not None:
            partial.add(data)
        elif flags & MORE:
            partial = self._partial_tell = Partial(layer, flags, 0.0, data)
        if flags & MORE:
            return
        self._partial_tell = None
        if partial is not None:
            data, layer, flags = b"".join(partial.parts), partial.layer, partial.flags
        request = IncomingRequest(self, TELL_ID, layer, flags, data, 0.0)
        self._tells[request] = None
        self._requests.on_request(request)
        if request.state is not IncomingState.WAITING or request.handler is None:
            self.on_taken(request)
        elif self._has_too_many_tells:
            self._on_too_many_tells(request)

    @property
    def _has_too_many_tells(self) -> bool:
        settings = self._settings
        return len(self._tells) >= settings.tells_waiting_max or self._tell_bytes >= settings.direct_request_bytes_max

    def _discard_tell(self, *, is_last: bool) -> None:
        """There is no memory for it. Its sender does not learn of it."""
        if self._partial_tell is not None:
            self._release_tell(self._partial_tell.size)
            self._partial_tell = None
        self._discards_tell = not is_last
        if is_last:
            self._peer.counters.tells_dropped += 1

    def _release_tell(self, size: int) -> None:
        self._tell_bytes -= size
        self._requests.held_bytes -= size

    def _on_too_many_tells(self, request: IncomingRequest) -> None:
        """Stop reading, which slows the sender. Not while we wait for a reply here: a handler that waits for it would
        never end."""
        if not self._connection.caller.has_open_requests:
            self._connection.pause_reading()
        elif len(self._tells) >= self._settings.direct_waiting_max:
            self._peer.counters.tells_dropped += 1
            request.cancel()
            self.on_taken(request)

    def on_taken(self, request: IncomingRequest) -> None:
        """A one-way message no longer waits for a handler."""
        if request.id == TELL_ID and request in self._tells:
            del self._tells[request]
            self._release_tell(len(request.data))
            is_below_half = (
                2 * len(self._tells) < self._settings.tells_waiting_max
                and 2 * self._tell_bytes < self._settings.direct_request_bytes_max
            )
            if is_below_half:
                self._connection.resume_reading()

    # -- the end

    def end(self) -> None:
        """The connection is lost. One-way messages that have arrived are still handled."""
        self._requests.held_bytes -= sum(sender.size for sender in self._replies.values())
        self._replies.clear()
        self._release(self._bytes)
        if self._partial_tell is not None:
            self._release_tell(self._partial_tell.size)
            self._partial_tell = None
        self._partial.clear()
        open_requests, self._open = list(self._open.values()), {}
        for request in open_requests:
            request.cancel()
