"""Aggregated acknowledgements: they tell an author how far its receivers are, so that it does not outrun them.

A peer that receives an author's frames over the tree acknowledges them to its parent, once per `ACK_BYTES`, up to
where it and all its children have them. So the author learns how far the slowest receiver is, and `broadcast` waits
when the send window is full. The window is about what the receivers acknowledge in `send_window_s`: where little is
read per second, a window of fixed size would mean many seconds of delay.

A straggler, far behind the other children, is left out of the count so that it does not slow the others down. It gets
what it can through its backlog, and misses the rest. Where all receivers are slow there is no straggler, and the author
waits.
"""

from typing import TYPE_CHECKING

from broadloom.protocol.broadcast.receive_window import ReceiveWindow
from broadloom.wire import PeerId
from broadloom.wire.link_messages import Ack

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.broadcaster import Broadcaster
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer

ACK_BYTES = 256 << 10
"""An acknowledgement is sent after this many bytes at the latest; an idle tree sends none."""
ACKS_PER_WINDOW = 8
"""Acknowledgements per full send window."""
UPDATE_BYTES = 8 << 10
"""Receivers check only after this many bytes whether an acknowledgement is due: half the shortest distance between two
of them."""
MEASURE_INTERVAL_S = 0.1
"""Interval over which the rate is measured."""
ACK_STALE_S = 2.0
"""Children that have not acknowledged anything for this long are not counted."""
MEAN_SIZE_FRAMES = 16
"""Frames in the moving average of the message size."""


class _ChildAck:
    __slots__ = ("acked_at", "lagging_since", "last_contiguous")

    def __init__(self) -> None:
        self.last_contiguous = 0
        self.acked_at = 0.0
        self.lagging_since: float | None = None
        """Since when it has been a straggler."""


class ChildAcks:
    """The acknowledgements of one author's tree."""

    __slots__ = (
        "_measured_at",
        "_measured_sequence",
        "bytes_per_s",
        "children",
        "last_acked",
        "message_bytes",
        "new_bytes",
    )

    def __init__(self, last_contiguous: int, message_bytes: float, now: float) -> None:
        self.children: dict[Link, _ChildAck] = {}
        self.last_acked = last_contiguous
        self.message_bytes = message_bytes
        """Moving average of the message size. It is the same at the author and at all receivers, which count messages
        by it: were it not, an author could wait for more bytes than its receivers have counted."""
        self.new_bytes = 0.0
        """Received since the last update, at the average size."""
        self.bytes_per_s: float | None = None
        """Rate of the slowest child that counts; None before the first measurement."""
        self._measured_sequence = last_contiguous
        self._measured_at = now

    def measure(self, last_contiguous: int, now: float) -> None:
        elapsed_s = now - self._measured_at
        if elapsed_s >= MEASURE_INTERVAL_S:
            recent = (last_contiguous - self._measured_sequence) * self.message_bytes / elapsed_s
            previous = self.bytes_per_s
            self.bytes_per_s = recent if previous is None or elapsed_s > ACK_STALE_S else (previous + recent) / 2
            self._measured_sequence, self._measured_at = last_contiguous, now


class AckAggregator:
    def __init__(self, peer: "Peer", broadcaster: "Broadcaster") -> None:
        self._peer = peer
        self._broadcaster = broadcaster
        assert peer.settings.send_window_bytes_min >= UPDATE_BYTES * ACKS_PER_WINDOW, "acknowledged too late"
        self._authors: dict[PeerId, ChildAcks] = {}
        self.is_window_full = False
        """Whether `broadcast` should wait."""

    def on_frame(self, author: PeerId, window: ReceiveWindow, size: int, count: int) -> None:
        acks = self._authors.get(author)
        if acks is None:
            acks = self._authors[author] = ChildAcks(window.last_contiguous, size / count, self._peer.runtime.now())
        acks.message_bytes += (size / count - acks.message_bytes) / MEAN_SIZE_FRAMES
        acks.new_bytes += count * acks.message_bytes
        if acks.new_bytes >= UPDATE_BYTES or author == self._peer.me.peer_id:
            acks.new_bytes = 0.0
            self._update(author, window, acks)

    def on_ack(self, link: "Link", ack: Ack) -> None:
        acks = self._authors.get(ack.author)
        window = self._broadcaster.receiver.windows.get(ack.author)
        if acks is None or window is None or link in window.tree.lazy_links or link.is_draining:
            return
        child = acks.children.get(link)
        if child is None:
            child = acks.children[link] = _ChildAck()
        child.last_contiguous = max(child.last_contiguous, min(ack.last_contiguous, window.last_contiguous))
        child.acked_at = self._peer.runtime.now()
        self._update(ack.author, window, acks)

    def _update(self, author: PeerId, window: ReceiveWindow, acks: ChildAcks) -> None:
        """Acknowledge to the parent if enough has arrived; the author itself updates its send window instead."""
        now, window_bytes = self._peer.runtime.now(), self._window_bytes(acks)
        last_contiguous = self._slowest(window, acks, window_bytes, now) if acks.children else window.last_contiguous
        acks.measure(last_contiguous, now)
        if author == self._peer.me.peer_id:
            self.is_window_full = (window.last_contiguous - last_contiguous) * acks.message_bytes > window_bytes
        elif window.tree.parent is not None:
            unacked_bytes = (last_contiguous - acks.last_acked) * acks.message_bytes
            if unacked_bytes >= ACK_BYTES or unacked_bytes >= window_bytes / ACKS_PER_WINDOW:
                acks.last_acked = last_contiguous
                window.tree.parent.send(Ack(author, last_contiguous))

    def _window_bytes(self, acks: ChildAcks) -> float:
        settings, bytes_per_s = self._peer.settings, acks.bytes_per_s
        if bytes_per_s is None:
            return settings.send_window_bytes_max
        return min(
            settings.send_window_bytes_max, max(settings.send_window_bytes_min, bytes_per_s * settings.send_window_s)
        )

    def _slowest(self, window: ReceiveWindow, acks: ChildAcks, window_bytes: float, now: float) -> int:
        """Up to where all children have received everything, without stragglers."""
        settings, size = self._peer.settings, acks.message_bytes
        best = (
            max(child.last_contiguous for child in acks.children.values())
            if len(acks.children) > 1
            else window.last_contiguous
        )
        slowest = window.last_contiguous
        for link, child in list(acks.children.items()):
            unacked_bytes = (window.last_contiguous - child.last_contiguous) * size
            if now - child.acked_at > ACK_STALE_S and unacked_bytes > min(ACK_BYTES, window_bytes / 2):
                # It should have acknowledged something: it has another parent, or it has stalled.
                del acks.children[link]
                continue
            if (best - child.last_contiguous) * size <= window_bytes / 2:
                child.lagging_since = None
            elif child.lagging_since is None:
                child.lagging_since = now
            if child.lagging_since is None or now - child.lagging_since < settings.straggler_timeout_s:
                slowest = min(slowest, child.last_contiguous)
        return slowest

    def recheck(self) -> None:
        """Update the send window while `broadcast` waits: a child may have become a straggler."""
        own = self._broadcaster.receiver.windows.get(self._peer.me.peer_id)
        acks = self._authors.get(self._peer.me.peer_id)
        if own is not None and acks is not None:
            self._update(self._peer.me.peer_id, own, acks)

    def remove_child(self, author: PeerId, link: "Link") -> None:
        acks = self._authors.get(author)
        if acks is not None:
            acks.children.pop(link, None)

    def on_link_lost(self, link: "Link") -> None:
        for acks in self._authors.values():
            acks.children.pop(link, None)
        self.recheck()

    def evict(self, author: PeerId) -> None:
        self._authors.pop(author, None)
