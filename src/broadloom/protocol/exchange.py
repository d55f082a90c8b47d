"""Exchanges: short connections that carry one request and one response and may become links.

The initiator sends Hello and its request together; the responder sends Hello and its response. A newcomer that finds a
member sends its join request over the same connection. Every exchange has a deadline, and an error ends only the
exchange in which it occurs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.protocol.events import PeerState
from broadloom.protocol.link import Link
from broadloom.wire import Address, Frame, PeerInfo, WireError, decode, encode
from broadloom.wire.codec import WireMessage
from broadloom.wire.exchange_messages import (
    MAGIC,
    VERSION,
    DiscoverRequest,
    Hello,
    JoinRequest,
    Reject,
    RejectReason,
)
from broadloom.wire.owner_messages import OwnerDocument

if TYPE_CHECKING:
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Connection, Timer

UNUSABLE_REASONS = (
    RejectReason.WRONG_PROTOCOL,
    RejectReason.WRONG_VERSION,
    RejectReason.WRONG_CHANNEL,
    RejectReason.MALFORMED_MESSAGE,
    RejectReason.WRONG_KEY,
    RejectReason.TICKET_EXPIRED,
    RejectReason.TICKET_REVOKED,
    RejectReason.PEER_ID_MISMATCH,
    RejectReason.TLS_MISMATCH,
    RejectReason.SIGNING_MISMATCH,
    RejectReason.CHANNEL_TLS_MISMATCH,
    RejectReason.CARD_MISMATCH,
    RejectReason.CHANNEL_CLOSED,
    RejectReason.QUOTA_EXCEEDED,
)
"""Reasons that another attempt with the same configuration cannot overcome."""

TIMEOUT_EXTENSION_S_MIN = 0.1
"""A deadline is extended if everything became slower since the exchange began, but not by less than this."""

AUTH_REASONS = (
    RejectReason.WRONG_KEY,
    RejectReason.TICKET_EXPIRED,
    RejectReason.TICKET_REVOKED,
    RejectReason.QUOTA_EXCEEDED,
)

OnResponse = Callable[["OutgoingExchange", WireMessage], None]
OnFailure = Callable[[RejectReason | None], None]


class Exchange:
    connection: "Connection"

    def __init__(self, peer: "Peer") -> None:
        self.peer = peer
        self.remote_info: PeerInfo | None = None
        """The remote peer, known from its Hello."""
        self.has_position = False
        self._is_closed = False
        self._started_at = peer.runtime.now()
        self._timer: Timer = self._start_timer(peer.pacing.stretched(peer.settings.exchange_timeout_s))

    @property
    def remote(self) -> PeerInfo:
        assert self.remote_info is not None, "requests are handled only after Hello"
        return self.remote_info

    def on_open(self) -> None:
        """Incoming connections are open from the start."""

    def on_frame(self, frame: Frame) -> None:
        if self._is_closed:
            return
        try:
            message = decode(frame)
            if isinstance(message, Reject):
                # Only our own id in a Hello proves that we dialed ourselves.
                reason = message.reason if message.reason is not RejectReason.SELF_CONNECTION else None
                self._fail(reason, message.text)
            elif self.remote_info is not None:
                self._on_message(message)
            elif isinstance(message, Hello):
                self._on_hello(message)
            else:
                raise WireError(f"an exchange starts with Hello, not with {type(message).__name__}")
        except WireError as error:
            self.peer.counters.malformed_frames += 1
            self._fail(RejectReason.MALFORMED_MESSAGE, str(error))

    def on_disconnect(self, reason: RejectReason | None = None, foreign: str = "") -> None:
        self._fail(reason, "connection lost" if reason is None else reason.name.lower().replace("_", " "))

    def on_writable(self) -> None:
        """Nothing to do: exchanges send little."""

    def on_send_overflow(self) -> None:
        self._fail(None, "does not read from the connection")

    def release(self) -> "Connection":
        """End the exchange; the connection gets another handler."""
        self._end()
        return self.connection

    def upgrade_to_link(self, *, after_partition: bool = False) -> Link:
        """Turn the connection into a link. If reading is paused, it is paused for this link too."""
        link = Link(self.peer, self.release(), self.remote)
        if self.peer.is_paused and self.peer.state is PeerState.CONNECTED:  # joining needs the answers of the neighbors
            self.connection.pause_reading()
        self.peer.links.add(link, complete=after_partition or not self.has_position)
        return link

    def close(self) -> None:
        if not self._is_closed:
            self._end()
            self.connection.close()

    def _send_hello(self) -> None:
        me = self.peer.me
        broadcaster = self.peer.broadcaster
        signed = broadcaster.verifier is not None
        hello = Hello(MAGIC, VERSION, self.peer.channel_id, me.peer_id, me.address, broadcaster.has_position, signed)
        self.connection.send(encode(hello))

    def _on_hello(self, hello: Hello) -> None:
        self.remote_info = PeerInfo(hello.peer_id, hello.address)
        self.has_position = hello.has_position

    def _hello_error(self, hello: Hello) -> tuple[RejectReason, str] | None:
        """Why the remote side is not a peer of our channel, with a text that helps to fix it."""
        if hello.magic != MAGIC:
            return RejectReason.WRONG_PROTOCOL, "this is a Broadloom peer; you use another protocol"
        if hello.version != VERSION:
            return RejectReason.WRONG_VERSION, f"this peer uses protocol version {VERSION}, you use {hello.version}"
        if hello.channel != self.peer.channel_id:
            return RejectReason.WRONG_CHANNEL, "this peer is on another channel; check type and instance"
        if hello.signed != (self.peer.broadcaster.verifier is not None):
            here, there = ("", "not ") if self.peer.broadcaster.verifier is not None else ("not ", "")
            return (
                RejectReason.SIGNING_MISMATCH,
                f"messages are {here}signed here and {there}signed by you; use the same option as the other peers",
            )
        if self.connection.identity is not None and hello.peer_id != self.connection.identity.peer_id:
            self.peer.counters.peer_id_mismatches += 1
            return RejectReason.PEER_ID_MISMATCH, "your certificate belongs to another peer id than you claim"
        return None

    def _on_message(self, message: WireMessage) -> None:
        raise AssertionError

    def _fail(self, reason: RejectReason | None, text: str) -> None:
        raise AssertionError

    @property
    def age_s(self) -> float:
        return self.peer.runtime.now() - self._started_at

    def _start_timer(self, delay_s: float) -> "Timer":
        return self.peer.runtime.call_later(delay_s, self._on_timeout)

    def _on_timeout(self) -> None:
        remaining_s = self.peer.pacing.stretched(self.peer.settings.exchange_timeout_s) - self.age_s
        if remaining_s > TIMEOUT_EXTENSION_S_MIN:
            self._timer = self._start_timer(remaining_s)
        else:
            self._fail(None, "no response before the timeout")

    def _end(self) -> None:
        self._is_closed = True
        self._timer.cancel()
        self.peer.on_exchange_ended(self)


class OutgoingExchange(Exchange):
    """This peer is the initiator."""

    def __init__(
        self,
        peer: "Peer",
        target: PeerInfo | Address,
        request: WireMessage,
        on_response: OnResponse,
        on_failure: OnFailure | None = None,
        *,
        follow_up: WireMessage | None = None,
    ) -> None:
        """`follow_up`: a second request that is sent along; the responder acts on it at once. Unless `continue_with`
        takes its response, the connection is closed, and the responder loses the link that it may have granted."""
        super().__init__(peer)
        self._expected_peer = target.peer_id if isinstance(target, PeerInfo) else None
        self._request = request
        self._follow_up = follow_up
        self._on_response = on_response
        self._on_failure = on_failure
        self.is_open = False
        """Whether the connection is established and the request sent."""
        self._awaits_response = True
        self._opened_at = 0.0
        self.failure = ""
        """Why it failed."""
        self._address = target.address if isinstance(target, PeerInfo) else target
        self.connection = peer.runtime.dial(self._address, self)

    def on_open(self) -> None:
        if self._is_closed:
            return
        self.is_open = True
        self._opened_at = self.peer.runtime.now()
        self._send_hello()
        self.connection.send(encode(self._request))
        if self._follow_up is not None:
            self.connection.send(encode(self._follow_up))

    def on_disconnect(self, reason: RejectReason | None = None, foreign: str = "") -> None:
        if foreign and not self._is_closed:
            self.peer.discovery.on_foreign_found(self._address, foreign)
            self._drop_expected_peer()
        super().on_disconnect(reason, foreign)

    def continue_with(self, request: WireMessage, on_response: OnResponse, on_failure: OnFailure) -> None:
        """Send a second request, unless it was sent along with the first one; from within the handler of the first
        response."""
        self._on_response, self._on_failure = on_response, on_failure
        self._started_at = self._opened_at = self.peer.runtime.now()
        self._timer = self._start_timer(self.peer.pacing.stretched(self.peer.settings.exchange_timeout_s))
        self._awaits_response = True
        if self._follow_up is None:
            self.connection.send(encode(request))

    def abandon(self) -> None:
        """Drop the exchange in favor of another one with the same peer."""
        self._fail(RejectReason.BUSY, "dropped in favor of another exchange")

    def _on_hello(self, hello: Hello) -> None:
        super()._on_hello(hello)
        if (error := self._hello_error(hello)) is not None:
            self._drop_expected_peer()
            self._fail(*error)
        elif self.peer.owner.is_excluded(self.connection.identity, hello.peer_id):
            self._fail(None, "the owner of the channel excludes it")
        elif self._expected_peer is not None and hello.peer_id != self._expected_peer:
            self._drop_expected_peer()
            self.peer.peer_cache.mark_alive(self.remote)
            self._fail(None, "another peer has this address now")
        elif hello.peer_id == self.peer.me.peer_id:
            self._fail(RejectReason.SELF_CONNECTION, "this is our own address")
        else:
            self.peer.peer_cache.mark_alive(self.remote)

    def _drop_expected_peer(self) -> None:
        """Another program has its address now."""
        if self._expected_peer is not None:
            self.peer.peer_cache.drop(self._expected_peer)

    def _on_message(self, message: WireMessage) -> None:
        if isinstance(message, OwnerDocument):
            self.peer.owner.on_exchange_document(message)
            return  # the response follows
        self._timer.cancel()
        self.peer.pacing.on_exchange(self.peer.runtime.now() - self._opened_at)
        self._awaits_response = False
        self._on_response(self, message)
        if not self._is_closed and not self._awaits_response:
            self.close()

    def _fail(self, reason: RejectReason | None, text: str) -> None:
        if self._is_closed:
            return
        self._end()
        self.failure = text
        self.connection.close()
        if reason in AUTH_REASONS:
            self.peer.on_auth_rejected(reason, f"{self._address}: {text}")
        if reason in UNUSABLE_REASONS:
            self.peer.trace(f"cannot use {self.remote_info or self._address}: {text}")
        if self._expected_peer is not None and self.remote_info is None:
            self.peer.peer_cache.mark_failed(self._expected_peer)
        if self._on_failure is not None:
            self._on_failure(reason)


class IncomingExchange(Exchange):
    """This peer is the responder."""

    def __init__(self, peer: "Peer", connection: "Connection") -> None:
        super().__init__(peer)
        self.connection = connection
        self._is_from_newcomer = False
        self._has_responded = False
        self._awaits_join_request = False
        connection.handler = self

    def respond(self, message: WireMessage) -> None:
        if not self._has_responded:
            self._has_responded = True
            self._send_hello()
            self._send_card()
        self.connection.send(encode(message))

    def await_join_request(self) -> None:
        """A newcomer has found us: its `JoinRequest` may follow over the same connection."""
        self._awaits_join_request = True

    def _send_card(self) -> None:
        """A newcomer gets the card first: it may have to use other settings, or the channel may be closed."""
        card = self.peer.owner.card_message
        if card is not None and self._is_from_newcomer:
            self.connection.send(encode(card))

    def reject(self, reason: RejectReason, text: str) -> None:
        if not self._is_closed:
            self.respond(Reject(reason, text))
            self.close()

    def _on_hello(self, hello: Hello) -> None:
        super()._on_hello(hello)
        if (error := self._hello_error(hello)) is not None:
            self.peer.counters.foreign_connections += 1
            self.reject(*error)
        elif (exclusion := self.peer.owner.exclusion_of(self.connection.identity, hello.peer_id)) is not None:
            self.reject(*exclusion)
        elif hello.peer_id == self.peer.me.peer_id:
            self.reject(RejectReason.SELF_CONNECTION, "you dialed yourself")

    def _on_message(self, message: WireMessage) -> None:
        handler = self.peer.request_handlers.get(type(message))
        if handler is None:
            raise WireError(f"{type(message).__name__} is not a request")
        if self._awaits_join_request and not isinstance(message, JoinRequest):
            raise WireError(f"{type(message).__name__} cannot be the second request of an exchange")
        self._awaits_join_request = False
        self._is_from_newcomer = isinstance(message, JoinRequest) or (
            isinstance(message, DiscoverRequest) and not message.is_connected
        )
        if self.peer.owner.is_closed:
            self.reject(RejectReason.CHANNEL_CLOSED, "the owner has closed this channel")
            return
        self.peer.peer_cache.mark_alive(self.remote)
        handler(self, message)
        if not self._is_closed and not self._awaits_join_request:
            self.close()

    def _fail(self, reason: RejectReason | None, text: str) -> None:
        if self._is_closed:
            return
        if reason is RejectReason.MALFORMED_MESSAGE:
            self.reject(reason, text)
        else:
            self.close()
