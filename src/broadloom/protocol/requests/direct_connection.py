"""`DirectConnection`: requests between two members over one connection, in both directions.

Requests are pipelined within the limits that the callee announced. What is larger than one part is sent in parts, in
turns with others, and only as fast as the connection takes them.
"""

from collections import deque
from typing import TYPE_CHECKING

from broadloom.protocol.requests.incoming import TELL_ID, IncomingRequest, IncomingState
from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind, OutgoingRequest, RequestState
from broadloom.protocol.requests.parts import Partial, PartSender
from broadloom.wire import PeerInfo, WireError, decode, encode
from broadloom.wire.direct_messages import (
    DEADLINE_MS_MAX,
    MORE,
    REPLY_PREFIX,
    REQUEST_ID_MAX,
    REQUEST_PREFIX,
    Cancel,
    DirectAccept,
    DirectClose,
    DirectOpen,
    RequestStatus,
    Tell,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from broadloom.wire.exchange_messages import RejectReason
from broadloom.wire.fields import PART_BYTES_MAX
from broadloom.wire.link_messages import Heartbeat
from broadloom.wire.xdr import UnknownMessageError

if TYPE_CHECKING:
    from broadloom.protocol.identity import Identity
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Connection

_HEARTBEAT = encode(Heartbeat())


class DirectConnection:
    """The handler of a connection that was opened with `DirectOpen`."""

    def __init__(
        self,
        peer: "Peer",
        connection: "Connection",
        peer_info: PeerInfo,
        limits: DirectOpen | DirectAccept,
        *,
        is_initiator: bool,
    ) -> None:
        self._peer = peer
        self._owner = peer.requests
        self._connection = connection
        self.peer_info = peer_info
        self.peer_id = peer_info.peer_id
        self.is_initiator = is_initiator
        self._remote_inflight_max = limits.inflight_max
        self._remote_bytes_max = limits.bytes_max
        self.is_closing = False
        """No further request of ours is sent here (`DirectClose`)."""
        self._close_was_sent = self._remote_is_closing = False
        self.is_closed = False
        self._last_id = 0
        self._outgoing: dict[int, OutgoingRequest] = {}
        """Requests of ours that were sent and not answered."""
        self._outgoing_bytes = 0
        self._reply_bytes = 0
        """Of replies to us that are not complete."""
        self._last_incoming_id = 0
        self._incoming: dict[int, IncomingRequest] = {}
        """Requests of the other side that were not answered."""
        self._tells: dict[IncomingRequest, None] = {}
        """Its one-way messages that wait for a handler."""
        self._incoming_bytes = 0
        """Of all these, and of the partial ones."""
        self._partial: dict[int, Partial] = {}
        self._partial_tell: Partial | None = None
        self._discards_tell = False
        self._discarded: dict[int, None] = {}
        """Requests that were answered before all their parts had arrived."""
        self._senders: deque[PartSender] = deque()
        """What is being sent in parts."""
        self._started_reply_bytes = 0
        self._waiting_replies: deque[PartSender] = deque()
        """Replies that must wait until the other side has received others."""
        self._tell_is_sending = False
        self._is_paused = False
        self._received_since_tick = self._sent_since_tick = True
        now = peer.runtime.now()
        self._received_at = self._sent_at = self.used_at = now
        connection.handler = self

    @property
    def identity(self) -> "Identity | None":
        return self._connection.identity

    @property
    def has_open_requests(self) -> bool:
        return bool(self._outgoing or self._incoming or self._partial or self._tells)

    @property
    def is_idle(self) -> bool:
        return not (self.has_open_requests or self._senders or self._waiting_replies or self._partial_tell)

    @property
    def open_bytes(self) -> int:
        return self._incoming_bytes

    # -- requests of this peer

    def try_send(self, request: OutgoingRequest) -> bool:
        """Send the request, unless the connection has no room for it now."""
        size = len(request.data)
        if size > self._remote_bytes_max:
            self._owner.end_queued(
                request,
                Outcome(OutcomeKind.TOO_LARGE, text=f"{size:,} bytes; it accepts {self._remote_bytes_max:,}"),
            )
            return True
        if self.is_closing or self._connection.is_congested:
            return False
        if request.is_tell:
            return self._try_tell(request)
        if len(self._outgoing) >= self._remote_inflight_max or self._outgoing_bytes + size > self._remote_bytes_max:
            return False
        if not self._outgoing:
            self._received_since_tick = True  # the other side was allowed to be silent until now
        self._last_id += 1
        request.id = self._last_id
        request.state = RequestState.SENT
        request.connection = self
        self._outgoing[request.id] = request
        self._outgoing_bytes += size
        self._sent_since_tick = True
        if size <= PART_BYTES_MAX:
            self._connection.send(
                encode_request(request.id, request.flags, self._deadline_ms(request), request.layer, request.data)
            )
        else:
            self._senders.append(PartSender(request.data, request))
            self._send_parts()
        if self._last_id == REQUEST_ID_MAX:
            self.begin_close()
        if self._is_paused:
            self._resume()  # its reply must be read
        return True

    def _try_tell(self, request: OutgoingRequest) -> bool:
        if self._tell_is_sending:
            return False
        request.state = RequestState.SENT
        self._sent_since_tick = True
        if len(request.data) <= PART_BYTES_MAX:
            self._connection.send(encode(Tell(request.layer, request.flags, request.data)))
            request.end(Outcome(OutcomeKind.REPLIED, sent=True))
        else:
            request.connection = self
            self._tell_is_sending = True
            self._senders.append(PartSender(request.data, request))
            self._send_parts()
        return True

    def cancel(self, request: OutgoingRequest) -> None:
        """The caller no longer waits for a request that was sent."""
        if request.is_tell:
            return  # half a message is of no use: the rest is sent
        self._remove_outgoing(request)
        self._stop_sending(request)
        self._connection.send(encode(Cancel(request.id)))
        self._on_room()

    def _deadline_ms(self, request: OutgoingRequest) -> int:
        remaining_s = request.deadline_at - self._peer.runtime.now()
        return max(1, min(int(remaining_s * 1000), DEADLINE_MS_MAX))

    def _remove_outgoing(self, request: OutgoingRequest) -> None:
        del self._outgoing[request.id]
        self._outgoing_bytes -= len(request.data)
        if request.parts is not None:
            self._reply_bytes -= sum(map(len, request.parts))

    def _stop_sending(self, request: OutgoingRequest) -> bool:
        """Whether parts of it were still to be sent."""
        for sender in self._senders:
            if sender.request is request:
                self._senders.remove(sender)
                return True
        return False

    def _on_reply(self, frame: bytes) -> None:
        request_id, status, flags, data = decode_reply(frame)
        request = self._outgoing.get(request_id)
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
        self._remove_outgoing(request)
        if self._senders and self._stop_sending(request):
            self._connection.send(encode(Cancel(request_id)))  # it was answered before all parts were sent
        if status is RequestStatus.OK:
            request.end(Outcome(OutcomeKind.REPLIED, data, sent=True))
        else:
            text = data[:1024].decode(errors="replace")
            request.end(Outcome(OutcomeKind.REFUSED, text=text, sent=True, status=status))
        self._on_room()

    def _on_room(self) -> None:
        self._owner.on_room(self)
        if self.is_closing:
            self._check_closed()

    # -- requests of the other side

    def _on_request(self, frame: bytes) -> None:
        request_id, flags, deadline_ms, layer, data = decode_request(frame)
        partial = self._partial.get(request_id)
        if partial is None:
            if request_id in self._discarded:
                if not flags & MORE:
                    del self._discarded[request_id]
                return
            if request_id <= self._last_incoming_id:
                raise WireError(f"request id {request_id} was used before")
            self._last_incoming_id = request_id
            if len(self._incoming) + len(self._partial) >= self._peer.settings.direct_inflight_max:
                raise WireError("more requests at a time than allowed")
        if self._incoming_bytes + len(data) > self._peer.settings.direct_request_bytes_max:
            raise WireError("requests are larger than allowed")
        if self._owner.held_bytes + len(data) > self._peer.settings.direct_bytes_max:
            self._refuse_for_size(request_id, flags)
            return
        deadline_at = self._peer.runtime.now() + deadline_ms / 1000
        self._incoming_bytes += len(data)
        self._owner.held_bytes += len(data)
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
        self._incoming[request_id] = request
        self._owner.on_request(request)

    def _refuse_for_size(self, request_id: int, flags: int) -> None:
        if request_id in self._partial:
            self._drop_partial(request_id)
        if flags & MORE:
            self._discarded[request_id] = None
        self._connection.send(encode_reply(request_id, RequestStatus.BUSY, 0, b"too many bytes wait here"))

    def _drop_partial(self, request_id: int) -> None:
        partial = self._partial.pop(request_id)
        self._release_bytes(partial.size)

    def _release_bytes(self, size: int) -> None:
        self._incoming_bytes -= size
        self._owner.held_bytes -= size

    def send_reply(self, request: IncomingRequest, status: RequestStatus, data: bytes) -> None:
        if self._incoming.pop(request.id, None) is None:
            return
        self._release_bytes(len(request.data))
        self._sent_since_tick = True
        if len(data) > PART_BYTES_MAX:
            if len(data) > self._remote_bytes_max:
                status, data = RequestStatus.TOO_LARGE, b"the reply has %d bytes" % len(data)
            elif self._owner.held_bytes + len(data) > self._peer.settings.direct_bytes_max:
                status, data = RequestStatus.FAILED, b"too many replies wait to be sent"
            else:
                self._owner.held_bytes += len(data)
                self._waiting_replies.append(PartSender(data, None, request.id))
                self._start_replies()
                return
        self._connection.send(encode_reply(request.id, status, 0, data))
        if self.is_closing:
            self._check_closed()

    def _start_replies(self) -> None:
        """The other side holds the parts of what was begun: no more than it allows."""
        while self._waiting_replies:
            size = self._waiting_replies[0].size
            if self._started_reply_bytes + size > self._remote_bytes_max:
                break
            self._started_reply_bytes += size
            self._senders.append(self._waiting_replies.popleft())
        self._send_parts()

    def _on_cancel(self, message: Cancel) -> None:
        self._discarded.pop(message.id, None)
        if message.id in self._partial:
            self._drop_partial(message.id)
        elif (request := self._incoming.pop(message.id, None)) is not None:
            self._release_bytes(len(request.data))
            request.cancel()
        for sender in (*self._senders, *self._waiting_replies):
            if sender.request is None and sender.reply_id == message.id:
                self._drop_reply(sender)
                break
        if self.is_closing:
            self._check_closed()

    def _drop_reply(self, sender: PartSender) -> None:
        self._owner.held_bytes -= sender.size
        if sender in self._senders:
            self._senders.remove(sender)
            self._started_reply_bytes -= sender.size
            self._start_replies()
        else:
            self._waiting_replies.remove(sender)

    def _on_tell(self, message: Tell) -> None:
        data, layer, flags = message.data, message.layer, message.flags
        if self._incoming_bytes + len(data) > self._tell_bytes_max:
            raise WireError("one-way messages are larger than allowed")
        if self._discards_tell or self._owner.held_bytes + len(data) > self._peer.settings.direct_bytes_max:
            self._discard_tell(is_last=not flags & MORE)
            return
        self._incoming_bytes += len(data)
        self._owner.held_bytes += len(data)
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
        self._owner.on_request(request)
        if request.state is not IncomingState.WAITING or request.handler is None:
            self.on_taken(request)
        elif len(self._tells) >= self._peer.settings.tells_waiting_max:
            self._on_too_many_tells(request)

    def _discard_tell(self, *, is_last: bool) -> None:
        """There is no memory for it. Its sender does not learn of it."""
        if self._partial_tell is not None:
            self._release_bytes(self._partial_tell.size)
            self._partial_tell = None
        self._discards_tell = not is_last
        if is_last:
            self._peer.counters.tells_dropped += 1

    @property
    def _tell_bytes_max(self) -> int:
        """Reading stops when too many wait, but one read may bring more than that."""
        return self._peer.settings.direct_request_bytes_max + self._peer.settings.send_queue_bytes_max

    def _on_too_many_tells(self, request: IncomingRequest) -> None:
        """Stop reading, which slows the sender. Not while we wait for a reply here: a handler that waits for it would
        never end."""
        if not self._outgoing:
            self._is_paused = True
            self._connection.pause_reading()
        elif len(self._tells) >= self._peer.settings.direct_waiting_max:
            self._peer.counters.tells_dropped += 1
            request.cancel()
            self.on_taken(request)

    def on_taken(self, request: IncomingRequest) -> None:
        """A one-way message no longer waits for a handler."""
        if request.id == TELL_ID and request in self._tells:
            del self._tells[request]
            self._release_bytes(len(request.data))
            if self._is_paused and not self.is_closed and 2 * len(self._tells) < self._peer.settings.tells_waiting_max:
                self._resume()

    def _resume(self) -> None:
        self._is_paused = False
        self._received_since_tick = True
        self._connection.resume_reading()

    # -- parts

    def _send_parts(self) -> None:
        """Send one part of each in turn while the connection takes them."""
        connection, senders = self._connection, self._senders
        while senders and not connection.is_congested and not self.is_closed:
            sender = senders.popleft()
            request, is_first = sender.request, sender.is_first
            part, more = sender.next()
            if request is None:
                connection.send(encode_reply(sender.reply_id, RequestStatus.OK, more, part))
            elif request.is_tell:
                connection.send(encode(Tell(request.layer, request.flags | more, bytes(part))))
            else:
                deadline_ms = self._deadline_ms(request) if is_first else 0
                connection.send(encode_request(request.id, request.flags | more, deadline_ms, request.layer, part))
            self._sent_since_tick = True
            if more:
                senders.append(sender)
            else:
                self._on_sent(sender)

    def _on_sent(self, sender: PartSender) -> None:
        if sender.request is None:
            self._owner.held_bytes -= sender.size
            self._started_reply_bytes -= sender.size
            self._start_replies()
        elif sender.request.is_tell:
            self._tell_is_sending = False
            if sender.request.state is RequestState.SENT:
                sender.request.end(Outcome(OutcomeKind.REPLIED, sent=True))
            self._on_room()
        if self.is_closing:
            self._check_closed()

    # -- protocol.runtime.ConnectionHandler

    def on_open(self) -> None:
        """Never called: the connection was open before."""

    def on_frame(self, frame: bytes) -> None:
        if self.is_closed:
            return
        self._received_since_tick = True
        number = frame[4:8]
        try:
            if number == REPLY_PREFIX:
                self._on_reply(frame)
            elif number == REQUEST_PREFIX:
                self._on_request(frame)
            else:
                self._on_other(frame)
        except UnknownMessageError:
            self._peer.counters.unknown_messages += 1
        except WireError as error:
            self._peer.counters.malformed_frames += 1
            self._peer.trace(f"closed the direct connection to {self.peer_info}: {error}")
            self.close(f"it broke the protocol: {error}")

    def _on_other(self, frame: bytes) -> None:
        match decode(frame):
            case Tell() as message:
                self._on_tell(message)
            case Cancel() as message:
                self._on_cancel(message)
            case DirectClose():
                self._remote_is_closing = True
                self.begin_close()
                self._check_closed()
            case Heartbeat():
                pass
            case message:
                raise WireError(f"{type(message).__name__} is not allowed on a direct connection")

    def on_writable(self) -> None:
        self._send_parts()
        self._on_room()

    def on_disconnect(self, reason: RejectReason | None = None, foreign: str = "") -> None:
        is_unauthorized = reason is not None or foreign
        self._end("its access was revoked" if is_unauthorized else "the connection was lost")

    def on_send_overflow(self) -> None:
        self._peer.counters.slow_neighbors_dropped += 1
        self._end("it does not read what it is sent")

    # -- the end

    def tick(self, now: float) -> None:
        """Send heartbeats and notice silence while requests are open. The hot path only sets flags."""
        settings = self._peer.settings
        timeout_s = self._peer.pacing.stretched(settings.heartbeat_timeout_s)
        if self._received_since_tick or self._is_paused:
            self._received_since_tick = False
            self._received_at = self.used_at = now
        elif now - self._received_at > timeout_s and (self.has_open_requests or self.is_closing):
            self.close(f"nothing received for {timeout_s:.0f} s")
            return
        if self._sent_since_tick:
            self._sent_since_tick = False
            self._sent_at = self.used_at = now
        elif self.has_open_requests and now - self._sent_at >= settings.heartbeat_s:
            self._connection.send(_HEARTBEAT)
            self._sent_at = now
        if self.is_idle and not self.is_closing and now - self.used_at > settings.direct_keep_s:
            self.begin_close()

    def begin_close(self) -> None:
        """Send no further request here; the connection is closed when all are answered."""
        if not self.is_closing:
            self.is_closing = True
            self._received_since_tick = True
            self._owner.on_closing(self)
            self._check_closed()

    def _check_closed(self) -> None:
        """`DirectClose` follows the last part of the last request. The side that has both sent and received it closes
        the connection when nothing is open."""
        if not self.is_closing or self.is_closed:
            return
        if not self._close_was_sent and all(sender.request is None for sender in self._senders):
            self._close_was_sent = True
            self._connection.send(encode(DirectClose()))
        if self._close_was_sent and self._remote_is_closing and self.is_idle:
            self._connection.close()
            self._end("closed")

    def close(self, text: str) -> None:
        """Close at once; requests that were sent end with this text."""
        if not self.is_closed:
            self._connection.close()
            self._end(text)

    def _end(self, text: str) -> None:
        if self.is_closed:
            return
        self.is_closed = self.is_closing = True
        sent = list(self._outgoing.values())
        for sender in (*self._senders, *self._waiting_replies):
            if sender.request is None:
                self._owner.held_bytes -= sender.size
            elif sender.request.is_tell and sender.request.state is RequestState.SENT:
                sent.append(sender.request)
        self._senders.clear()
        self._waiting_replies.clear()
        self._release_bytes(self._incoming_bytes - sum(len(tell.data) for tell in self._tells))
        incoming, self._incoming = list(self._incoming.values()), {}
        self._partial.clear()
        for request in incoming:
            request.cancel()
        self._outgoing = {}
        for outgoing in sent:
            outgoing.end(Outcome(OutcomeKind.GONE, text=text, sent=True))
        self._owner.on_closed(self)
