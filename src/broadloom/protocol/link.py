"""`Link`: a long-lived connection to a neighbor."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.protocol.broadcast.send_backlog import SendBacklog
from broadloom.protocol.events import LinkDownReason
from broadloom.protocol.identity import Identity
from broadloom.wire import Frame, PeerId, PeerInfo, WireError, encode
from broadloom.wire.broadcast_frame import BROADCAST
from broadloom.wire.codec import WireMessage
from broadloom.wire.exchange_messages import RejectReason
from broadloom.wire.link_messages import UnlinkAck
from broadloom.wire.xdr import UnknownMessageError

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.retention import RetainedFrame
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Connection, Timer

_BROADCAST = BROADCAST.to_bytes(4, "big")


class Link:
    """Passes broadcasts to the receiver and everything else to the handlers of the peer."""

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
        "replaced",
        "reserved_for",
        "sent_since_tick",
    )

    def __init__(self, peer: "Peer", connection: "Connection", peer_info: PeerInfo) -> None:
        self._peer = peer
        self._connection = connection
        self.peer_info = peer_info
        self.peer_id = peer_info.peer_id
        self.reserved_for: int | None = None
        """The random walk (or the probed peer) for which this edge is on offer; an edge is never offered twice."""
        self.is_draining = False
        """Cut: the slot is free, but frames are read until the neighbor acknowledges."""
        self.lookups = 0
        """Retained frames looked up for this neighbor since the last tick."""
        self.backlog = SendBacklog(peer, self)
        """Frames held back while the connection is congested."""
        # State that other parts keep per link, each written by one of them only.
        self.neighbor_list: tuple[int, ...] | None = None
        """`TwoHopView`: the neighbor's neighbors."""
        self.replaced: PeerInfo | None = None
        """`PartitionMerge`: the neighbor that was given up for this one."""
        self.digest_received = False
        """`AntiEntropy`: whether the neighbor sent its digest."""
        self.log_start = 0
        """`AntiEntropy`: frames retained before this position are sent by it, later ones as they arrive."""
        self.buffered_at_digest: tuple[RetainedFrame, ...] = ()
        """`AntiEntropy`: frames we held beyond the positions in our digest."""
        self.frames_received = 0
        """Broadcast frames received over this link."""
        self.credentials_sent: dict[PeerId, None] = {}
        """`MessageVerifier`: authors whose credential was sent over this link."""
        self.received_since_tick = True
        self.sent_since_tick = True
        self.linked_at = self._received_at = self._sent_at = peer.runtime.now()
        self._drain_timer: Timer | None = None
        self._release_timer: Timer | None = None
        connection.handler = self

    @property
    def is_congested(self) -> bool:
        """Whether the neighbor reads too slowly: frames sent now would only queue up."""
        return self._connection.is_congested

    @property
    def is_behind(self) -> bool:
        """Whether the neighbor reads more slowly than frames for it are sent: some are waiting."""
        return self._connection.is_congested or bool(self.backlog)

    @property
    def queued_bytes(self) -> int:
        return self._connection.queued_bytes

    @property
    def identity(self) -> Identity | None:
        return self._connection.identity

    def on_open(self) -> None:
        """Never called: the connection was open before it became a link."""

    def on_frame(self, frame: Frame) -> None:
        self.received_since_tick = True
        try:
            if frame[4:8] == _BROADCAST:
                self.frames_received += 1
                broadcaster = self._peer.broadcaster
                if not broadcaster.fast_path.take(self, frame):
                    broadcaster.receiver.on_broadcast(self, frame)
            else:
                self._peer.on_link_frame(self, bytes(frame))
        except UnknownMessageError:
            self._peer.counters.unknown_messages += 1  # newer peers may send messages that we do not know
        except WireError as error:
            self._peer.counters.malformed_frames += 1
            self._peer.trace(f"closed the link to {self.peer_info}: {error}")
            self.close(LinkDownReason.PROTOCOL_ERROR)

    def on_writable(self) -> None:
        if not self.is_draining:
            self.backlog.on_writable()

    def on_disconnect(self, reason: RejectReason | None = None, foreign: str = "") -> None:
        is_unauthorized = reason is not None or foreign
        self._on_ended(LinkDownReason.ACCESS_REVOKED if is_unauthorized else LinkDownReason.CONNECTION_LOST)

    def on_send_overflow(self) -> None:
        self._peer.counters.slow_neighbors_dropped += 1
        self._peer.trace(f"closed the link to {self.peer_info}: it does not read what it is sent")
        self._on_ended(LinkDownReason.TOO_SLOW)

    def send_frame(self, frame: bytes, rest: memoryview | None = None) -> None:
        self.sent_since_tick = True
        self._connection.send(frame, rest)

    def send_now(self, frame: bytes) -> bool:
        """Send before this event has been handled completely. False if the frame would have to wait: nothing was sent.
        A link with a backlog is congested, so no frame overtakes it."""
        if not self._connection.send_now(frame):
            return False
        self.sent_since_tick = True
        return True

    def send(self, message: WireMessage) -> None:
        self.sent_since_tick = True
        self._connection.send(encode(message))

    def count_lookup(self) -> None:
        self.lookups += 1

    def tick(self, now: float) -> None:
        """Send heartbeats and close a silent link. The hot path only sets flags, so it never reads the clock."""
        settings = self._peer.settings
        timeout_s = self._peer.pacing.stretched(settings.heartbeat_timeout_s)
        self.lookups = 0
        if self.received_since_tick or self._peer.is_paused:
            self.received_since_tick = False
            self._received_at = now
        elif now - self._received_at > timeout_s:
            self.close(LinkDownReason.HEARTBEAT_TIMEOUT)
            return
        if not self.digest_received and now - self.linked_at > timeout_s:
            self.close(LinkDownReason.PROTOCOL_ERROR)  # alive, but useless without a digest
            return
        if self.sent_since_tick:
            self.sent_since_tick = False
            self._sent_at = now
        elif now - self._sent_at >= settings.heartbeat_s:
            self._connection.send(self._peer.roster.sync.heartbeat(self))
            self._sent_at = now

    def is_silent(self, now: float, seconds: float) -> bool:
        """Whether nothing was received for this time."""
        return not self.received_since_tick and now - self._received_at >= seconds

    def close(self, reason: LinkDownReason) -> None:
        """Close the link at once."""
        self._connection.close()
        self._on_ended(reason)

    # -- reservation while the edge is on offer to a newcomer

    def reserve_edge(self, walk_id: int) -> None:
        self.release_edge()
        self.reserved_for = walk_id
        delay_s = self._peer.pacing.stretched(self._peer.settings.edge_reservation_s)
        self._release_timer = self._peer.runtime.call_later(delay_s, self.release_edge)

    def release_edge(self) -> None:
        self.reserved_for = None
        if self._release_timer is not None:
            self._release_timer.cancel()
            self._release_timer = None

    # -- draining: the edge was cut, but frames in flight still count

    def drain(self, unlink: WireMessage) -> None:
        """Send the last message, free the slot, and read until the neighbor is done too."""
        self._peer.links.remove(self, LinkDownReason.REWIRED)
        self.send(unlink)
        self._start_draining(self._peer.pacing.stretched(self._peer.settings.unlink_timeout_s), self.finish)

    def linger(self) -> None:
        """The neighbor leaves: free its slot, but read for a moment what it still relays."""
        self._peer.links.remove(self, LinkDownReason.PEER_LEFT)
        self._start_draining(self._peer.settings.leave_linger_s, self.acknowledge_unlink)

    def _start_draining(self, timeout_s: float, on_timeout: Callable[[], None]) -> None:
        self.is_draining = True
        self._drain_timer = self._peer.runtime.call_later(timeout_s, on_timeout)

    def acknowledge_unlink(self) -> None:
        """The neighbor sent its last message: acknowledge and close."""
        self.send(UnlinkAck())
        self.finish()

    def finish(self) -> None:
        self._connection.close()
        self._on_ended(LinkDownReason.REWIRED)

    def _on_ended(self, reason: LinkDownReason) -> None:
        self.release_edge()
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        self.is_draining = False
        self._peer.links.remove(self, reason)
