"""`TcpConnection`: whole frames in, whole frames out, over TCP or TLS, and exactly one disconnect.

Frames sent in one iteration of the event loop go out in one write, except those of `send_now`. If the other end does
not keep up, they wait in the send queue, and beyond its limit the connection is dropped. Closing is lossless: it
half-closes and reads on until the other end has closed too, because closing a socket with unread bytes would discard
the last frames sent.
"""

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, cast

from broadloom.protocol.identity import CredentialError, Identity
from broadloom.security import explain_as_initiator, former_member, reject_reason_for
from broadloom.transport.flow_control import limit_kernel_buffers, unread_bytes
from broadloom.transport.foreign_program import (
    PLAIN_PEER,
    describe_foreign,
    plain_reject,
    reject_plain_peer,
    reject_tls_peer,
)
from broadloom.transport.tls_stream import TlsStream
from broadloom.wire import FrameSplitter, WireError, encode
from broadloom.wire.exchange_messages import Reject, RejectReason

if TYPE_CHECKING:
    from broadloom.protocol.runtime import ConnectionHandler
    from broadloom.transport.node import TcpNode

TRANSPORT_HIGH_WATER_BYTES = 128 << 10
WRITE_BYTES = 256 << 10
"""Maximum size of one write from a long queue."""
SMALL_READ_BYTES = 4 << 10
"""After a smaller read, replies are flushed at once; after a larger one, together with those to the next reads."""
LARGE_READ_BYTES = 64 << 10
"""A read of this size with as much still in the kernel is a lag."""
FRAME_START_BYTES = 4 << 10
"""After a large frame, this much is read to see how long the next one is: if it is large too, its rest is read straight
into it."""
WRITELINES_MAX = 16
"""More buffers than this are joined before writing, which is cheaper than writing them separately."""
_TLS_ALERT = b"\x15\x03"


class TcpConnection(asyncio.BufferedProtocol):
    """Driven by its asyncio transport. Created by `TcpNode.dial` and for each accepted connection."""

    handler: "ConnectionHandler"

    def __init__(self, node: "TcpNode", *, is_initiator: bool) -> None:
        self._node = node
        self._is_initiator = is_initiator
        self.identity: Identity | None = None
        self.certificate = b""
        self.remote_host = ""
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._tls: TlsStream | None = None
        self._splitter = FrameSplitter()
        self._expects_large_frame = False
        self._send_queue: list[bytes | memoryview] = []
        self._send_queue_bytes = 0
        self._writable = False
        self._flush_scheduled = False
        self._ready = False
        """Open, and with TLS both ends are authenticated."""
        self._is_closed = False
        """Closed by its handler, or lost and reported: no more frames in either direction."""
        self._write_closed = False
        self.connect_task: asyncio.Task[None] | None = None
        self.deadline: asyncio.TimerHandle | None = None
        self._reading_paused = False
        self.last_progress_at = 0.0
        """When the other end last read something."""
        self.is_above_high_water = False
        """The send queue is above `Limits.high_water_bytes`; written by `flow_control.py`."""
        self.slow_peer_budget = node.limits.slow_peer_budget_s, 0.0
        """Time this connection may still delay our broadcasts, and as of when; written by `flow_control.py`."""

    # -- protocol.runtime.Connection

    def send(self, frame: bytes, rest: memoryview | None = None) -> None:
        if self._is_closed:
            return
        self._send_queue.append(frame)
        self._send_queue_bytes += len(frame)
        if rest is not None:
            self._send_queue.append(rest)
            self._send_queue_bytes += len(rest)
        if not self._flush_scheduled and self._writable:
            self._flush_scheduled = True
            self._node.flush_soon(self)
        if self._send_queue_bytes > self._node.limits.high_water_bytes:
            if not self.is_above_high_water:
                self._node.flow.on_congested(self)
            if self._send_queue_bytes > self._node.settings.send_queue_bytes_max:
                self._on_send_overflow()

    def send_now(self, frame: bytes) -> bool:
        if self._send_queue or not self._writable or self._is_closed:
            return False
        assert self._transport is not None
        self._transport.write(frame if self._tls is None else self._tls.encrypt(frame))
        return True

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self.is_above_high_water:
            self._node.flow.on_writable(self)
        if self._transport is None:
            if self.connect_task is not None:
                self.connect_task.cancel()
            self._node.on_connection_closed(self)
        elif not self._ready:
            self._transport.abort()
        else:
            self._set_deadline(self._node.limits.close_timeout_s)
            if not self._flush_scheduled and self._writable:
                self._finish()

    @property
    def is_congested(self) -> bool:
        return self.is_above_high_water

    @property
    def queued_bytes(self) -> int:
        """Unsent bytes on this side."""
        return self._send_queue_bytes + (self._transport.get_write_buffer_size() if self._transport is not None else 0)

    # -- called by the node

    def flush(self) -> None:
        """Write the send queue; once per iteration of the event loop."""
        self._flush_scheduled = False
        if not self._writable or self._write_closed:
            return
        assert self._transport is not None
        self.last_progress_at = self._node.now()
        while self._send_queue and self._writable:
            parts = self._next_write()
            if self._tls is not None:
                self._transport.write(self._tls.encrypt(parts[0] if len(parts) == 1 else b"".join(parts)))
            elif len(parts) == 1:
                self._transport.write(parts[0])
            elif len(parts) <= WRITELINES_MAX:
                self._transport.writelines(parts)
            else:
                self._transport.write(b"".join(parts))
        if self._writable:
            if self.is_above_high_water:
                self._node.flow.on_writable(self)
                if not self._is_closed:
                    self.handler.on_writable()
            if self._is_closed and not self._send_queue:  # not empty if `on_writable` has sent something and closed
                self._finish()

    def _next_write(self) -> list[bytes | memoryview]:
        """The whole send queue, or the front of a long one."""
        if self._send_queue_bytes <= WRITE_BYTES:
            parts, self._send_queue, self._send_queue_bytes = self._send_queue, [], 0
            return parts
        count = size = 0
        while size < WRITE_BYTES and count < len(self._send_queue):
            size += len(self._send_queue[count])
            count += 1
        parts = self._send_queue[:count]
        del self._send_queue[:count]
        self._send_queue_bytes -= size
        return parts

    def drop_slow(self) -> None:
        """The other end is stalled."""
        self._on_send_overflow()

    def disconnect_unauthorized(self, reason: RejectReason) -> None:
        """The ticket of the other end has expired or was revoked."""
        self._disconnect(*former_member(reason))

    def on_connect_failed(self, reason: RejectReason | None = None) -> None:
        self.connect_task = None
        self._disconnect(reason)
        self._node.on_connection_closed(self)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._reading_paused and self._ready:
            self._reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close without notice."""
        self._is_closed = self._write_closed = True
        self._clear_send_queue()
        if self.connect_task is not None:
            self.connect_task.cancel()
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(TRANSPORT_HIGH_WATER_BYTES)
        self._socket = transport.get_extra_info("socket")
        limit_kernel_buffers(
            self._socket, self._node.limits.notsent_lowat_bytes, self._node.settings.socket_buffer_bytes
        )
        self.connect_task = None
        if self._is_initiator and self._is_closed:
            self._transport.abort()
            return
        if not self._is_initiator:
            peername = transport.get_extra_info("peername")
            self.remote_host = peername[0] if peername else ""
            if self._node.is_closing or not self._node.admission_control.admit(self):
                self._is_closed = True
                self._transport.abort()
                return
        credentials = self._node.credentials
        if credentials is None:
            self._open()
            return
        context = credentials.client_context if self._is_initiator else credentials.server_context
        self._tls = TlsStream(context, credentials.server_name if self._is_initiator else None)
        if self._is_initiator:
            self._handshake()
        else:
            self._set_deadline(self._node.limits.handshake_timeout_s)

    def get_buffer(self, _size_hint: int) -> memoryview:
        buffer = self._node.read_buffer
        if self._is_closed:
            return buffer  # what still comes is discarded
        if self._tls is None and (missing := self._splitter.missing) is not None:
            return missing
        return buffer[:FRAME_START_BYTES] if self._expects_large_frame else buffer

    def buffer_updated(self, count: int) -> None:
        if self._is_closed:
            return
        if self._tls is None and self._splitter.missing is not None:
            frame = self._splitter.advance(count)
            if frame is not None:
                self._expects_large_frame = True
                self.handler.on_frame(frame)
        else:
            self._expects_large_frame = False
            self._on_data(bytes(self._node.read_buffer[:count]))
        if count < SMALL_READ_BYTES:
            self._node.flush()
        elif count >= LARGE_READ_BYTES and unread_bytes(self._socket) >= LARGE_READ_BYTES:
            self._node.flow.rate_limiter.on_lag()

    def _on_data(self, data: bytes) -> None:
        try:
            if self._tls is not None:
                self._tls.feed(data)
                if not self._tls.ready and not self._handshake():
                    return
                data = self._tls.decrypt()
            for frame in self._splitter.feed(data):
                self.handler.on_frame(frame)
                if self._is_closed:
                    return
        except ssl.SSLError as problem:
            self._on_tls_error(problem, data)
        except WireError as problem:
            self._on_malformed(data, problem)

    def eof_received(self) -> bool:
        self._disconnect(None)
        return False

    def connection_lost(self, _problem: Exception | None) -> None:
        self._write_closed = True
        self._writable = False
        if self.deadline is not None:
            self.deadline.cancel()
        self._disconnect(None)
        self._clear_send_queue()
        self._tls = None  # frees 100 kB before the garbage collector finds the reference cycle
        self._node.on_connection_closed(self)

    def pause_writing(self) -> None:
        self._writable = False
        self.last_progress_at = self._node.now()  # until now the transport has taken everything, also from `send_now`

    def resume_writing(self) -> None:
        if self._ready and not self._write_closed:
            self._writable = True
            self.flush()

    # -- internal

    def _handshake(self) -> bool:
        """Returns whether the connection is open now."""
        assert self._tls is not None
        assert self._transport is not None
        done = self._tls.do_handshake()
        if outgoing := self._tls.pending_output():
            self._transport.write(outgoing)
        if not done:
            return False
        self.certificate = self._tls.certificate
        assert self._node.credentials is not None
        try:
            self.identity = self._node.credentials.identify(self.certificate)
        except CredentialError as rejected:
            self._node.count_rejection(rejected.reason)
            if not self._is_initiator:
                self._transport.write(self._tls.encrypt(encode(Reject(rejected.reason, rejected.text))))
            self._disconnect(*former_member(rejected.reason), half_close=True)
            return False
        self._open()
        return not self._is_closed

    def _open(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        self._ready = self._writable = True
        if self._is_initiator:
            if self._send_queue:
                self._flush_scheduled = True
                self._node.flush_soon(self)
            self.handler.on_open()
        else:
            self._node.admission_control.remove_pending(self)
            self._node.on_accept(self)

    def _on_tls_error(self, problem: ssl.SSLError, data: bytes) -> None:
        """TLS failed here, or the other end sent an alert."""
        foreign = ""
        reason = reject_reason_for(problem, is_initiator=self._is_initiator)
        self._node.count_rejection(reason)
        assert self._tls is not None
        assert self._transport is not None
        self._clear_send_queue()  # TLS cannot encrypt after an error
        if alert := self._tls.pending_output():
            self._transport.write(alert)
        elif reason is RejectReason.TLS_MISMATCH and not self._is_initiator and not self._ready:
            # OpenSSL sends no alert to a client without TLS. It may be a peer with tls=False: reply in plain text.
            self._transport.write(encode(reject_plain_peer(data, self._node.channel_id)))
        if self._is_initiator:
            reason, foreign = explain_as_initiator(problem, is_peer=self._tls.is_peer)
            if reason is RejectReason.TLS_MISMATCH:
                foreign = describe_foreign(data)
                reason = RejectReason.WRONG_PROTOCOL if foreign not in ("", PLAIN_PEER) else reason
                rejected = plain_reject(data)
                if rejected is not None and rejected.reason is RejectReason.CHANNEL_TLS_MISMATCH:
                    reason = rejected.reason
        self._disconnect(reason, foreign, half_close=True)

    def _on_malformed(self, data: bytes, problem: WireError) -> None:
        """The data is not a frame. A TLS mismatch is recognized by the reply of the other end."""
        assert self._transport is not None
        is_tls = self._tls is None and data.startswith(_TLS_ALERT)
        self._node.count_malformed()
        if not is_tls and self._send_queue_bytes == 0 and self._writable:
            reject = encode(reject_tls_peer(data, self._node.server_name, problem))
            self._transport.write(reject if self._tls is None else self._tls.encrypt(reject))
        reason = RejectReason.TLS_MISMATCH if is_tls else RejectReason.WRONG_PROTOCOL
        self._disconnect(reason, describe_foreign(data) if self._is_initiator else "", half_close=True)

    def _disconnect(self, reason: RejectReason | None, foreign: str = "", *, half_close: bool = False) -> None:
        """Report the disconnect and close. `half_close`: let the other end read the reason that was just written."""
        if self._is_closed:
            return
        self._is_closed = True
        self._clear_send_queue()
        if self._transport is not None and not self._write_closed:
            self._write_closed = True
            self._set_deadline(self._node.limits.close_timeout_s)
            if half_close:
                self._half_close()
            else:
                self._transport.close()
        if self._ready or self._is_initiator:
            self.handler.on_disconnect(reason, foreign)

    def _on_send_overflow(self) -> None:
        """The send queue is over its limit. The handler may be sending right now, so it is called later."""
        if self._is_closed:
            return
        self._is_closed = self._write_closed = True
        self._clear_send_queue()
        if self._transport is not None:
            self._transport.abort()
        self._node.call_soon(self.handler.on_send_overflow)

    def _finish(self) -> None:
        """Everything is sent: half-close, and read until the other end has closed too."""
        if self._write_closed:
            return
        self._write_closed = True
        assert self._transport is not None
        if self._tls is not None and (close_notify := self._tls.close_notify()):
            self._transport.write(close_notify)
        self._half_close()

    def _half_close(self) -> None:
        """Send EOF; further input is discarded until the other end closes."""
        assert self._transport is not None
        self.resume_reading()
        if not self._transport.can_write_eof():
            self._transport.close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # the other end has already closed
            self._transport.abort()

    def _clear_send_queue(self) -> None:
        self._send_queue.clear()
        self._send_queue_bytes = 0
        if self.is_above_high_water:
            self._node.flow.on_writable(self)

    def _set_deadline(self, seconds: float) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        self.deadline = self._node.call_later(seconds, self._on_deadline)

    def _on_deadline(self) -> None:
        if not self._ready and not self._is_closed:
            self._node.count_rejection(None)
        self._is_closed = True
        if self._transport is not None:
            self._transport.abort()
