"""The author side: number messages, bundle them into frames, choose flood or tree, send to the links."""

from typing import TYPE_CHECKING

from broadloom.protocol.broadcast.acks import AckAggregator
from broadloom.protocol.broadcast.anti_entropy import AntiEntropy
from broadloom.protocol.broadcast.backfill import Backfill
from broadloom.protocol.broadcast.fast_path import FastPath
from broadloom.protocol.broadcast.gap_repair import GapRepair
from broadloom.protocol.broadcast.plumtree import Plumtree, TreeState
from broadloom.protocol.broadcast.receiver import Receiver
from broadloom.protocol.broadcast.retention import RetainedFrame, RetentionBuffer
from broadloom.protocol.broadcast.signing import MessageVerifier
from broadloom.wire import Broadcast, PeerId, WireError
from broadloom.wire.broadcast_frame import BUNDLE_MESSAGES_MAX, FLOOD, TREE, Dissemination, Priority, encode_broadcast
from broadloom.wire.framing import FRAME_BYTES_MAX
from broadloom.wire.payload_kind import PayloadKind

if TYPE_CHECKING:
    from broadloom.protocol.identity import Signer
    from broadloom.protocol.link import Link
    from broadloom.protocol.owner.quotas import QuotaEnforcer
    from broadloom.protocol.peer import Peer


QUIET_S = 0.001
"""A message that follows a frame sooner than this waits for the end of the turn: others may follow as well."""
MESSAGE_BYTES_MAX = FRAME_BYTES_MAX - 256
"""The largest message that fits into one frame, signed or not."""


class _OpenBundle:
    """Messages of this peer that have not been sent yet."""

    __slots__ = ("after", "attributes", "busy_until", "is_due", "messages", "size", "was_single")

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.after = 0
        """Number of the last message before them."""
        self.size = 0
        self.attributes = (0, 0, 0)
        """Kind, priority and TTL, which all messages of a frame share."""
        self.is_due = False
        """A flush is scheduled."""
        self.busy_until = 0.0
        """Until then more messages are expected."""
        self.was_single = True
        """The last frame had one message."""


class Broadcaster:
    """Sends this peer's messages, and owns all parts of the broadcast protocol."""

    def __init__(self, peer: "Peer", signer: "Signer | None" = None) -> None:
        self._peer = peer
        settings = peer.settings
        self.verifier = MessageVerifier(peer, self, signer) if signer is not None else None
        self.retention = RetentionBuffer(settings.retention_s, settings.retention_bytes_max)
        self.receiver = Receiver(peer, self)
        self.fast_path = FastPath(peer, self)
        self.anti_entropy = AntiEntropy(peer, self)
        self.gap_repair = GapRepair(peer, self)
        self.backfill = Backfill(peer)
        self.plumtree = Plumtree(peer, self)
        self.acks = AckAggregator(peer, self)
        self.quotas: QuotaEnforcer | None = None
        """Exists while a card with quotas is in force."""
        self.in_process_links: list[Link] = []
        """Links to other peers of the same process. They are not part of the fabric and get everything."""
        self.is_leaving = False
        self._bundle = _OpenBundle()
        self._bundle_bytes = min(settings.bundle_bytes, MESSAGE_BYTES_MAX)
        self._sent_at = -settings.retention_s
        self._recent_frames = 0.0
        """Frames of this peer in about the last second."""

    @property
    def has_position(self) -> bool:
        return self.receiver.has_position

    @property
    def next_sequence(self) -> int:
        """The number of the next message of this peer."""
        return self.receiver.own_window().last_contiguous + len(self._bundle.messages) + 1

    def broadcast(
        self, data: bytes, kind: int = PayloadKind.DATA, priority: int = Priority.NORMAL, ttl_ms: int = 0
    ) -> int:
        """Send to all peers and return the sequence number. Messages of one turn of the event loop share a frame,
        except for one that is sent at once (see `_schedule_flush`)."""
        bundle, attributes = self._bundle, (kind, priority, ttl_ms)
        messages, size = bundle.messages, bundle.size + len(data)
        if not messages or size > self._bundle_bytes or attributes != bundle.attributes:
            if len(data) > MESSAGE_BYTES_MAX:
                raise WireError(
                    f"a message of {len(data)} bytes does not fit into a frame (at most {MESSAGE_BYTES_MAX})"
                )
            if messages:
                self.flush()
            size, bundle.attributes = len(data), attributes
            bundle.after = self.receiver.own_window().last_contiguous
        messages.append(data)
        bundle.size = size
        sequence = bundle.after + len(messages)
        if len(messages) >= BUNDLE_MESSAGES_MAX:
            self.flush()
        elif not bundle.is_due:
            bundle.is_due = True
            self._schedule_flush()
        return sequence

    def begin_leave(self) -> None:
        """Push what neighbors would have to pull: this peer is soon gone, and no other may have its messages."""
        self.flush()
        self.is_leaving = True
        for link in self._peer.links:
            link.backlog.push_own()

    def _schedule_flush(self) -> None:
        """At the end of this turn; a moment later if the author is busy, so that its frames get larger; at once if it
        often sends single messages. The first message after a long pause may begin a burst: a frame of its own would be
        flooded."""
        runtime, bundle = self._peer.runtime, self._bundle
        now = runtime.now()
        if now < bundle.busy_until:
            runtime.call_later(self._peer.settings.bundle_linger_s, self._flush_when_due)
        elif bundle.was_single and now - self._sent_at >= QUIET_S and self._is_frequent(now):
            bundle.is_due = False
            self.flush(at_once=True)
        else:
            runtime.call_soon(self._flush_when_due)

    def _flush_when_due(self) -> None:
        self._bundle.is_due = False
        self.flush()

    def flush(self, *, at_once: bool = False) -> None:
        """Send the open bundle as one frame. `at_once`: before this turn of the event loop ends."""
        peer, bundle = self._peer, self._bundle
        messages, size = tuple(bundle.messages), bundle.size
        if not messages:
            return
        kind, priority, ttl_ms = bundle.attributes
        bundle.messages.clear()
        bundle.size = 0
        me, now = peer.me.peer_id, peer.runtime.now()
        own = self.receiver.own_window()
        sequence = own.last_contiguous + 1
        last = own.last_contiguous + len(messages)
        # Peers may have evicted an author that was idle for this long; a new stream starts for them without a gap.
        stream_start = sequence if now - self._sent_at >= peer.settings.retention_s else own.stream_start
        dissemination = self._choose_dissemination(size, now)
        message = Broadcast(me, sequence, stream_start, messages, 1, 0, dissemination, kind, priority, ttl_ms)
        frame = encode_broadcast(message)
        if self.verifier is not None:
            frame = encode_broadcast(self.verifier.signed(message, frame))
        self._sent_at = now
        bundle.was_single = len(messages) == 1
        if not bundle.was_single:
            bundle.busy_until = now + 2 * peer.settings.bundle_linger_s
        self.receiver.on_sent(own, last, stream_start, now)
        retained = RetainedFrame(me, sequence, last, frame, 0, 0, now, 0, dissemination, priority, ttl_ms)
        self.retention.add(retained)
        self.send_to_links(own.tree, retained, frame, None, None, at_once=at_once)
        if dissemination is TREE:
            self.acks.on_frame(me, own, len(frame), len(messages))
        peer.counters.sent += len(messages)
        if peer.observer is not None:
            for offset, data in enumerate(messages):
                peer.observer.sent(sequence + offset, data, kind)

    def _choose_dissemination(self, size: int, now: float) -> Dissemination:
        """Large frames use the tree, and so do all frames of a busy author: its tree is fresh, and frequent floods are
        expensive for everyone."""
        is_tree = size >= self._peer.settings.flood_bytes_max or self._is_frequent(now)
        self._recent_frames = self._count_recent_frames(now) + 1
        return TREE if is_tree else FLOOD

    def _is_frequent(self, now: float) -> bool:
        """Whether a frame that is sent now is one of many."""
        return self._count_recent_frames(now) + 1 > self._peer.settings.flood_frames_per_s_max

    def _count_recent_frames(self, now: float) -> float:
        return self._recent_frames * max(0.0, 1.0 - (now - self._sent_at))

    # -- links

    def send_to_links(
        self,
        tree: TreeState,
        retained: RetainedFrame,
        frame: bytes,
        rest: memoryview | None,
        received_from: "Link | None",
        *,
        at_once: bool = False,
    ) -> None:
        """Send one frame to all other neighbors, or along the author's tree. All links share the same bytes."""
        author = retained.author
        lazy = tree.lazy_links if retained.dissemination == TREE else ()
        for link in self._peer.links:
            if link is received_from:
                continue
            if link in lazy:
                self.plumtree.queue_ihave(link, author)
            elif link.is_behind:
                link.backlog.add(retained)
            elif not (at_once and self.is_introduced(link, author) and link.send_now(frame)):
                self.send(link, author, frame, rest)
        for link in self.in_process_links:
            if link is not received_from:
                self.send(link, author, frame, rest)

    def is_introduced(self, link: "Link", author: PeerId) -> bool:
        """Whether the neighbor needs nothing before a frame of this author."""
        return self.verifier is None or author in link.credentials_sent

    def send(self, link: "Link", author: PeerId, frame: bytes, rest: memoryview | None = None) -> None:
        """Send one frame to one neighbor; on a signed channel, after its author's credential."""
        if self.verifier is not None:
            if not self.verifier.can_send_credential(author):
                return
            self.verifier.send_credential(link, author)
        link.send_frame(frame, rest)

    def send_retained(self, link: "Link", retained: RetainedFrame, now: float) -> None:
        if link.is_behind:
            link.backlog.add(retained)
        else:
            self.send(link, retained.author, *retained.copy(now))

    def on_link_lost(self, link: "Link") -> None:
        self.acks.on_link_lost(link)
        self.gap_repair.on_link_lost(link)
        self.plumtree.on_link_lost(link)

    def tick(self, now: float) -> None:
        self.retention.expire(now)
        if self.verifier is not None:
            self.verifier.recheck()
