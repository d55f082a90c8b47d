"""One link: a lasting line to a neighbour."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.protocol.broadcast.send_backlog import SendBacklog
from broadloom.protocol.events import LinkDownReason
from broadloom.protocol.identity import Identity
from broadloom.wire import PeerId, PeerInfo, WireError, encode
from broadloom.wire.broadcast_frame import BROADCAST
from broadloom.wire.codec import WireMessage
from broadloom.wire.exchange_messages import RejectReason
from broadloom.wire.link_messages import Heartbeat, UnlinkAck
from broadloom.wire.xdr import UnknownMessageError

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.retention import RetainedFrame
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Connection, Timer

_HEARTBEAT = encode(Heartbeat())
_BROADCAST = BROADCAST.to_bytes(4, "big")


class Link:
    """Driven by its line; hands broadcasts to the stream and all else to the peer's handlers."""

    __slots__ = (
        "_connection",
        "_drain_timer",
        "_peer",
        "_received_at",
        "_release_timer",
        "_sent_at",
        "backlog",
        "buffered_at_digest",
        "credentials_sent",
        "digest_received",
        "frames_received",
        "is_draining",
        "linked_at",
        "log_start",
        "lookups",
        "neighbor_list",
        "peer_id",
        "peer_info",
        "received_since_tick",
        "reserved_for",
        "sent_since_tick",
    )

    def __init__(self, peer: "Peer", connection: "Connection", peer_info: PeerInfo) -> None:
        self._peer = peer
        self._connection = connection
        self.peer_info = peer_info
        self.peer_id = peer_info.peer_id
        self.reserved_for: int | None = None
        """The walk (or the peer that we probe) for which this edge is on offer; an edge is never offered twice."""
        self.is_draining = False
        """Cut: no longer one of our places, still read until the other end has said its last word."""
        self.digest_received = False
        self.neighbor_list: tuple[int, ...] | None = None
        """The neighbour's neighbours, as it said last."""
        self.log_start = 0
        """What we retained before this position is sent by reconciliation, all after it as it comes."""
        self.lookups = 0
        """Messages that were looked for on this neighbour's behalf since the last tick."""
        self.frames_received = 0
        """Frames with broadcasts that came over this link."""
        self.backlog = SendBacklog(peer, self)
        """What it will get when it has read what it was sent."""
        self.buffered_at_digest: tuple[RetainedFrame, ...] = ()
        """What we held above the marks that our greeting told."""
        self.credentials_sent: dict[PeerId, None] = {}
        """Authors whose credential was sent over this link."""
        self.received_since_tick = True
        """Something came since the last tick."""
        self.sent_since_tick = True
        """Something was sent since the last tick."""
        self.linked_at = self._received_at = self._sent_at = peer.runtime.now()
        self._drain_timer: Timer | None = None
        self._release_timer: Timer | None = None
        connection.handler = self

    @property
    def is_congested(self) -> bool:
        """Whether the neighbour is behind with reading: what is sent now would only wait."""
        return self._connection.is_congested

    @property
    def queued_bytes(self) -> int:
        """Waiting for this neighbour."""
        return self._connection.queued_bytes

    @property
    def identity(self) -> Identity | None:
        """Who the neighbour has proved to be."""
        return self._connection.identity

    def on_open(self) -> None:
        """Nothing: a link is made of a call, and was open before."""

    def on_frame(self, frame: bytes) -> None:
        self.received_since_tick = True
        try:
            if frame[4:8] == _BROADCAST:
                self._peer.broadcaster.receiver.on_broadcast(self, frame)
            else:
                self._peer.on_link_frame(self, frame)
        except UnknownMessageError:
            self._peer.counters.unknown_messages += 1  # a later version may say more than we understand
        except WireError as problem:
            self._peer.counters.malformed_frames += 1
            self._peer.trace(f"hung up on {self.peer_info}: {problem}")
            self.close(LinkDownReason.PROTOCOL_ERROR)

    def on_writable(self) -> None:
        if self.backlog and not self.is_draining:
            self.backlog.drain()

    def on_disconnect(self, reason: RejectReason | None = None) -> None:
        self._on_ended(LinkDownReason.CONNECTION_LOST if reason is None else LinkDownReason.ACCESS_REVOKED)

    def on_send_overflow(self) -> None:
        self._peer.counters.slow_neighbors_dropped += 1
        self._peer.trace(f"hung up on {self.peer_info}, which does not read what it is sent")
        self._on_ended(LinkDownReason.TOO_SLOW)

    def send_frame(self, frame: bytes, rest: memoryview | None = None) -> None:
        self.sent_since_tick = True
        self._connection.send(frame, rest)

    def send(self, message: WireMessage) -> None:
        self.sent_since_tick = True
        self._connection.send(encode(message))

    def tick(self, now: float) -> None:
        """Keep an idle link alive, and give up one that is silent. The hot path sets flags, only this reads a clock."""
        settings = self._peer.settings
        self.lookups = 0
        if self.received_since_tick or self._peer.is_paused:
            self.received_since_tick = False
            self._received_at = now
        elif now - self._received_at > settings.heartbeat_timeout_s:
            self.close(LinkDownReason.HEARTBEAT_TIMEOUT)
            return
        if not self.digest_received and now - self.linked_at > settings.heartbeat_timeout_s:
            self.close(LinkDownReason.PROTOCOL_ERROR)  # alive, but not a neighbour that one could learn anything from
            return
        if self.sent_since_tick:
            self.sent_since_tick = False
            self._sent_at = now
        elif now - self._sent_at >= settings.heartbeat_s:
            self._connection.send(_HEARTBEAT)
            self._sent_at = now

    def close(self, reason: LinkDownReason) -> None:
        """Give the link up at once."""
        self._connection.close()
        self._on_ended(reason)

    # -- reservation: the edge is on offer to a newcomer

    def reserve_edge(self, walk_id: int) -> None:
        self.release_edge()
        self.reserved_for = walk_id
        self._release_timer = self._peer.runtime.call_later(self._peer.settings.edge_reservation_s, self.release_edge)

    def release_edge(self) -> None:
        self.reserved_for = None
        if self._release_timer is not None:
            self._release_timer.cancel()
            self._release_timer = None

    # -- draining: the edge was cut, what is under way still counts

    def drain(self, unlink: WireMessage) -> None:
        """Say the last word, free the place, and listen until the other end is done too."""
        self._peer.links.remove(self, LinkDownReason.REWIRED)
        self.send(unlink)
        self._start_draining(self._peer.settings.unlink_timeout_s, self.finish)

    def linger(self) -> None:
        """The other end leaves: free its place, but listen for a moment to what it still passes on."""
        self._peer.links.remove(self, LinkDownReason.PEER_LEFT)
        self._start_draining(self._peer.settings.leave_linger_s, self.acknowledge_unlink)

    def _start_draining(self, timeout_s: float, on_timeout: Callable[[], None]) -> None:
        self.is_draining = True
        self._drain_timer = self._peer.runtime.call_later(timeout_s, on_timeout)

    def acknowledge_unlink(self) -> None:
        """The other end said its last word; say ours and hang up behind it."""
        self.send(UnlinkAck())
        self.finish()

    def finish(self) -> None:
        """All has been said."""
        self._connection.close()
        self._on_ended(LinkDownReason.REWIRED)

    def _on_ended(self, reason: LinkDownReason) -> None:
        self.release_edge()
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        self.is_draining = False
        self._peer.links.remove(self, reason)
