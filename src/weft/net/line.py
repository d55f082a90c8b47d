"""One TCP connection as a line of the fabric: whole frames in, whole frames out, and an end that is told once.

What is sent within one turn of the event loop goes out in one write. When the other end does not keep up, frames wait
here, counted; beyond the limit the line is choked. Our own end says goodbye, half closes and reads on until the other
end has closed too, because closing a socket with unread bytes would destroy what we said last.
"""

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, cast

from weft.fabric.seal import Identity, Rejected
from weft.net.flow import keep_kernel_queues_short, unread_bytes
from weft.net.tls import Tls
from weft.security import refusal_of
from weft.wire import Splitter, WireError, encode
from weft.wire.calls import Refusal, Refuse

if TYPE_CHECKING:
    from weft.fabric.world import LineOwner
    from weft.net.node import Node

TRANSPORT_HIGH_BYTES = 128 << 10
WRITE_BYTES = 256 << 10
"""Written at once, at most, when more than that waits."""
QUIET_BYTES = 4 << 10
"""After a smaller read, what it made us send goes out at once; after a larger one, with what the next reads bring."""
MUCH_BYTES = 64 << 10
"""After a read of so much, with so much still to be read, we are behind."""
PARTS_MAX = 16
"""Up to so many parts are written as they are; more and smaller ones are cheaper joined."""
_TLS_ALERT = b"\x15\x03"


class TcpLine(asyncio.Protocol):
    """Driven by its transport; made by `Node.dial` or for each connection that is accepted."""

    owner: "LineOwner"

    def __init__(self, node: "Node", *, dialled: bool) -> None:
        self._node = node
        self._dialled = dialled
        self.identity: Identity | None = None
        self.certificate = b""
        self.remote_host = ""
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._tls: Tls | None = None
        self._splitter = Splitter()
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0
        self._writable = False
        self._scheduled = False
        self._ready = False
        """Open, and with TLS both ends have proved who they are."""
        self._over = False
        """Our owner closed it, or was told that it is lost: nothing is heard or said any more."""
        self._ended = False
        self.connecting: asyncio.Task[None] | None = None
        self.deadline: asyncio.TimerHandle | None = None
        self._reading_paused = False
        self.taken_at = 0.0
        """When the other end last took something."""
        self.is_congested = False
        """So much waits here that the author of it should wait too; kept by `flow.py`."""
        self.patience = node.limits.patience_s, 0.0
        """How long this line may still hold up our broadcasts, and as of when; kept by `flow.py`."""

    # -- for the owner

    def send(self, frame: bytes, rest: memoryview | None = None) -> None:
        if self._over:
            return
        self._out.append(frame)
        self._out_bytes += len(frame)
        if rest is not None:
            self._out.append(rest)
            self._out_bytes += len(rest)
        if not self._scheduled and self._writable:
            self._scheduled = True
            self._node.flush_soon(self)
        if self._out_bytes > self._node.limits.congested_bytes:
            if not self.is_congested:
                self._node.flow.congested(self)
            if self._out_bytes > self._node.limits.queue_bytes_max:
                self._choke()

    def close(self) -> None:
        if self._over:
            return
        self._over = True
        if self.is_congested:
            self._node.flow.relieved(self)
        if self._transport is None:
            if self.connecting is not None:
                self.connecting.cancel()
            self._node.ended(self)
        elif not self._ready:
            self._transport.abort()
        else:
            self._set_deadline(self._node.limits.close_s)
            if not self._scheduled and self._writable:
                self._end()

    @property
    def is_full(self) -> bool:
        return self.is_congested

    @property
    def queued_bytes(self) -> int:
        """Waiting for the other end, on our side."""
        return self._out_bytes + (self._transport.get_write_buffer_size() if self._transport is not None else 0)

    # -- for the node

    def flush(self) -> None:
        """Once a turn of the loop: everything that waits, in one write."""
        self._scheduled = False
        if not self._writable or self._ended:
            return
        assert self._transport is not None
        self.taken_at = self._node.now()
        while self._out and self._writable:
            parts = self._next_write()
            if self._tls is not None:
                self._transport.write(self._tls.encrypted(parts[0] if len(parts) == 1 else b"".join(parts)))
            elif len(parts) == 1:
                self._transport.write(parts[0])
            elif len(parts) <= PARTS_MAX:
                self._transport.writelines(parts)
            else:
                self._transport.write(b"".join(parts))
        if self._writable:
            if self.is_congested:
                self._node.flow.relieved(self)
                if not self._over:
                    self.owner.on_room()
            if self._over:
                self._end()

    def _next_write(self) -> list[bytes | memoryview]:
        """All that waits, or as much of a long queue as the other end should be sent at once."""
        if self._out_bytes <= WRITE_BYTES:
            parts, self._out, self._out_bytes = self._out, [], 0
            return parts
        count = size = 0
        while size < WRITE_BYTES and count < len(self._out):
            size += len(self._out[count])
            count += 1
        parts = self._out[:count]
        del self._out[:count]
        self._out_bytes -= size
        return parts

    def give_up(self) -> None:
        """The other end takes nothing any more."""
        self._choke()

    def expel(self, refusal: Refusal) -> None:
        """The other end is no longer admitted."""
        self._lose(refusal)

    def unanswered(self, refusal: Refusal | None = None) -> None:
        """Nobody there."""
        self.connecting = None
        self._lose(refusal)
        self._node.ended(self)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._reading_paused and self._ready:
            self._reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Break off without a word."""
        self._over = self._ended = True
        self._forget_waiting()
        if self.connecting is not None:
            self.connecting.cancel()
        if self._transport is not None:
            self._transport.abort()

    # -- for the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(TRANSPORT_HIGH_BYTES)
        self._socket = transport.get_extra_info("socket")
        keep_kernel_queues_short(self._socket, self._node.limits)
        self.connecting = None
        if self._dialled and self._over:
            self._transport.abort()
            return
        if not self._dialled:
            peername = transport.get_extra_info("peername")
            self.remote_host = peername[0] if peername else ""
            if self._node.is_closing or not self._node.doorman.admits(self):
                self._over = True
                self._transport.abort()
                return
        membership = self._node.membership
        if membership is None:
            self._open()
            return
        context = membership.client_context if self._dialled else membership.server_context
        self._tls = Tls(context, membership.server_name if self._dialled else None)
        if self._dialled:
            self._shake_hands()
        else:
            self._set_deadline(self._node.limits.handshake_s)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        try:
            if self._tls is not None:
                self._tls.take(data)
                if not self._tls.ready and not self._shake_hands():
                    return
                data = self._tls.decrypted()
            self._read(data)
            if len(data) < QUIET_BYTES:
                self._node.flush()
            elif len(data) >= MUCH_BYTES and unread_bytes(self._socket) >= MUCH_BYTES:
                self._node.flow.pace.behind()
        except ssl.SSLError as problem:
            self._failed(problem)
        except WireError as problem:
            self._garbage(data, problem)

    def eof_received(self) -> bool:
        self._lose(None)
        return False

    def connection_lost(self, _problem: Exception | None) -> None:
        self._ended = True
        self._writable = False
        if self.deadline is not None:
            self.deadline.cancel()
        self._lose(None)
        self._forget_waiting()
        self._tls = None  # a hundred kilobytes, which the cycle of line and owner would hold for a while
        self._node.ended(self)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        if self._ready and not self._ended:
            self._writable = True
            self.flush()

    # -- the inside

    def _read(self, data: bytes) -> None:
        for frame in self._splitter.feed(data):
            self.owner.on_frame(frame)
            if self._over:
                return

    def _shake_hands(self) -> bool:
        """Whether the line is open now."""
        assert self._tls is not None
        assert self._transport is not None
        done = self._tls.shake_hands()
        if outgoing := self._tls.outgoing():
            self._transport.write(outgoing)
        if not done:
            return False
        self.certificate = self._tls.certificate
        assert self._node.membership is not None
        try:
            self.identity = self._node.membership.identify(self.certificate)
        except Rejected as rejected:
            self._node.refused(rejected.refusal)
            if not self._dialled:
                self._transport.write(self._tls.encrypted(encode(Refuse(rejected.refusal, rejected.text))))
            self._lose(rejected.refusal, after_a_word=True)
            return False
        self._open()
        return not self._over

    def _open(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        self._ready = self._writable = True
        if self._dialled:
            if self._out:
                self._scheduled = True
                self._node.flush_soon(self)
            self.owner.on_open()
        else:
            self._node.doorman.done(self)
            self._node.called(self)

    def _failed(self, problem: ssl.SSLError) -> None:
        """TLS says no, here or at the other end."""
        refusal = refusal_of(problem, dialled=self._dialled)
        self._node.refused(refusal)
        assert self._tls is not None
        assert self._transport is not None
        self._forget_waiting()  # nothing can be encrypted any more
        if alert := self._tls.outgoing():
            self._transport.write(alert)
        elif refusal is Refusal.WRONG_MODE and not self._dialled and not self._ready:
            # OpenSSL says nothing to who does not speak TLS at all: perhaps a plain peer, so it is told in plain.
            self._transport.write(encode(Refuse(refusal, "this peer uses TLS, you do not; connect like the others")))
        self._lose(refusal, after_a_word=True)

    def _garbage(self, data: bytes, problem: WireError) -> None:
        """Not frames of ours. Who speaks TLS where we do not, or the other way round, is told so by what comes back."""
        assert self._transport is not None
        is_tls = self._tls is None and data.startswith(_TLS_ALERT)
        self._node.malformed()
        if not is_tls and self._out_bytes == 0 and self._writable:
            refuse = encode(Refuse(Refusal.NOT_WEFT, str(problem)[:200]))
            self._transport.write(refuse if self._tls is None else self._tls.encrypted(refuse))
        self._lose(Refusal.WRONG_MODE if is_tls else Refusal.NOT_WEFT, after_a_word=True)

    def _lose(self, refusal: Refusal | None, *, after_a_word: bool = False) -> None:
        """Nothing more is to be expected of the other end. `after_a_word`: it was told why, and shall be able to read
        it."""
        if self._over:
            return
        self._over = True
        self._forget_waiting()
        if self._transport is not None and not self._ended:
            self._ended = True
            self._set_deadline(self._node.limits.close_s)
            if after_a_word:
                self._half_close()
            else:
                self._transport.close()
        if self._ready or self._dialled:
            self.owner.on_lost(refusal)

    def _choke(self) -> None:
        """Too much waits for the other end. Our owner may be in the middle of sending, so it is told in a moment."""
        if self._over:
            return
        self._over = self._ended = True
        self._forget_waiting()
        if self._transport is not None:
            self._transport.abort()
        self._node.soon(self.owner.on_choked)

    def _end(self) -> None:
        """All was said: half close, and listen until the other end has closed as well."""
        if self._ended:
            return
        self._ended = True
        assert self._transport is not None
        if self._tls is not None and (goodbye := self._tls.goodbye()):
            self._transport.write(goodbye)
        self._half_close()

    def _half_close(self) -> None:
        """Nothing more comes from us; what still comes from there is read, and thrown away, until that ends too."""
        assert self._transport is not None
        self.resume_reading()
        if not self._transport.can_write_eof():
            self._transport.close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # the other end has broken off already; whoever hung up must not stumble over that
            self._transport.abort()

    def _forget_waiting(self) -> None:
        self._out.clear()
        self._out_bytes = 0
        if self.is_congested:
            self._node.flow.relieved(self)

    def _set_deadline(self, seconds: float) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        self.deadline = self._node.later(seconds, self._too_late)

    def _too_late(self) -> None:
        if not self._ready and not self._over:
            self._node.refused(None)
        self._over = True
        if self._transport is not None:
            self._transport.abort()
