"""`DirectConnection`: requests between two members over one connection, in both directions.

What each side does with requests is in `caller_side.py` and `callee_side.py`. Here is what they share: sending, parts,
heartbeats, and closing without losing a request.
"""

from typing import TYPE_CHECKING

from broadloom.protocol.requests.callee_side import CalleeSide
from broadloom.protocol.requests.caller_side import CallerSide
from broadloom.protocol.requests.outgoing import OutgoingRequest
from broadloom.protocol.requests.parts import PartQueue
from broadloom.wire import Frame, PeerInfo, WireError, decode, encode
from broadloom.wire.direct_messages import (
    REPLY_PREFIX,
    REQUEST_PREFIX,
    Cancel,
    DirectAccept,
    DirectClose,
    DirectOpen,
    Tell,
)
from broadloom.wire.exchange_messages import RejectReason
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
        self.parts = PartQueue(self)
        self.caller = CallerSide(peer, self, limits.inflight_max, limits.bytes_max)
        self.callee = CalleeSide(peer, self, limits.bytes_max)
        self.is_closing = False
        """No further request of ours is sent here (`DirectClose`)."""
        self._close_was_sent = self._remote_is_closing = False
        self.is_closed = False
        self.is_paused = False
        """Not read, because too many one-way messages wait for a handler."""
        self._received_since_tick = self._sent_since_tick = True
        self._expects_heartbeat = False
        """A request of ours was canceled, and nothing was received since: the connection may be dead."""
        self._received_at = self._sent_at = self.used_at = peer.runtime.now()
        connection.handler = self

    @property
    def identity(self) -> "Identity | None":
        return self._connection.identity

    @property
    def has_open_requests(self) -> bool:
        return self.caller.has_open_requests or self.callee.has_open_requests

    @property
    def is_idle(self) -> bool:
        return not self.caller.has_open_requests and not len(self.parts) and self.callee.is_idle

    @property
    def _expects_something(self) -> bool:
        return self.has_open_requests or self._expects_heartbeat or self.is_closing

    # -- for the two sides

    @property
    def is_congested(self) -> bool:
        return self._connection.is_congested or self.is_closed

    def send(self, frame: bytes) -> None:
        self._sent_since_tick = True
        self._connection.send(frame)

    def send_heartbeat(self) -> None:
        self._connection.send(_HEARTBEAT)

    def on_canceled(self) -> None:
        """A request of ours was canceled; the other side answers with a heartbeat."""
        if self._received_since_tick:  # the silence begins now, and not with the next request
            self._received_since_tick, self._received_at = False, self._peer.runtime.now()
        self._expects_heartbeat = True

    def on_room(self) -> None:
        """A request of ours has ended, or the connection takes more."""
        self._owner.on_room(self)
        self.check_closed()

    def pause_reading(self) -> None:
        if not self.is_paused:
            self.is_paused = True
            self._connection.pause_reading()

    def resume_reading(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self._received_since_tick = True
            self._connection.resume_reading()

    # -- requests of this peer

    def try_send(self, request: OutgoingRequest) -> bool:
        """Send the request, unless the connection has no room for it or the quota does not allow it now."""
        if self.is_closing or self._connection.is_congested:
            return False
        if not (self.caller.has_open_requests or self._expects_heartbeat):
            self._received_since_tick = True  # the other side was allowed to be silent until now
        if not self.caller.try_send(request):
            return False
        if self.caller.has_used_all_ids:
            self.begin_close()
        if self.is_paused and not request.is_tell:
            self.resume_reading()  # its reply must be read
        return True

    # -- protocol.runtime.ConnectionHandler

    def on_open(self) -> None:
        """Never called: the connection was open before."""

    def on_frame(self, frame: Frame) -> None:
        if self.is_closed:
            return
        self._received_since_tick = True
        number = frame[4:8]
        try:
            if number == REPLY_PREFIX:
                self.caller.on_reply(frame)
            elif number == REQUEST_PREFIX:
                self.callee.on_request(frame)
            else:
                self._on_other(frame)
        except UnknownMessageError:
            self._peer.counters.unknown_messages += 1
        except WireError as error:
            self._peer.counters.malformed_frames += 1
            self._peer.trace(f"closed the direct connection to {self.peer_info}: {error}")
            self.close(f"it broke the protocol: {error}")

    def _on_other(self, frame: Frame) -> None:
        match decode(frame):
            case Tell() as message:
                self.callee.on_tell(message)
            case Cancel() as message:
                self.callee.on_cancel(message)
                self.check_closed()
            case DirectClose():
                self._remote_is_closing = True
                self.begin_close()
                self.check_closed()
            case Heartbeat():
                pass
            case message:
                raise WireError(f"{type(message).__name__} is not allowed on a direct connection")

    def on_writable(self) -> None:
        self.parts.send()
        self.on_room()

    def on_disconnect(self, reason: RejectReason | None = None, foreign: str = "") -> None:
        is_unauthorized = reason is not None or foreign
        self._end("its access was revoked" if is_unauthorized else "the connection was lost")

    def on_send_overflow(self) -> None:
        self._peer.counters.slow_neighbors_dropped += 1
        self._end("it does not read what it is sent")

    # -- silence, and the end

    def tick(self, now: float) -> None:
        """Send heartbeats and notice silence while requests are open. The hot path only sets flags."""
        settings = self._peer.settings
        timeout_s = self._peer.pacing.stretched(settings.heartbeat_timeout_s)
        if self._received_since_tick or self.is_paused:
            self._received_since_tick = self._expects_heartbeat = False
            self._received_at = self.used_at = now
        elif now - self._received_at > timeout_s and self._expects_something:
            self.close(f"nothing received for {timeout_s:.0f} s")
            return
        if self._sent_since_tick:
            self._sent_since_tick = False
            self._sent_at = self.used_at = now
        elif self.has_open_requests and now - self._sent_at >= settings.heartbeat_s:
            self.send_heartbeat()
            self._sent_at = now
        if self.is_idle and not self.is_closing and now - self.used_at > settings.direct_keep_s:
            self.begin_close()

    def begin_close(self) -> None:
        """Send no further request here; the connection is closed when all are answered."""
        if not self.is_closing:
            self.is_closing = True
            self._received_since_tick = True
            self._owner.on_closing(self)
            self.check_closed()

    def check_closed(self) -> None:
        """`DirectClose` follows the last part of the last request. The side that has both sent and received it closes
        the connection when nothing is open."""
        if not self.is_closing or self.is_closed:
            return
        if not self._close_was_sent and not self.caller.is_sending:
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
        self.is_paused = False
        self.parts.clear()
        self.callee.end()
        self.caller.end(text)
        self._owner.on_closed(self)
