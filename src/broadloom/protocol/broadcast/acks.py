"""How far the others are: what an author goes by so that it does not outrun the fabric.

Whoever is fed with an author's messages tells the one that feeds it, after every so many bytes, up to where it and all
that it feeds have them. So the author learns how far the last of them is, and waits when too much is under way.

How much that is depends on how fast it goes: about as much as all get within `under_way_s`. Where little is read in a
second, a fixed number of bytes would be many seconds of waiting for everyone.

One that falls behind those around it is left out of the count: it must not slow the others down. It gets what it can
(`arrears.py`) and is told what it missed. Where all are slow nobody is behind the others, and the author waits for all.
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
"""Told after so much has come at the latest; in quiet times nothing is told at all."""
ACKS_PER_WINDOW = 8
"""Told so often while as much comes as may be under way."""
MEASURE_INTERVAL_S = 0.1
"""How fast it goes is measured over times of this length."""
ACK_STALE_S = 2.0
"""Who has told nothing for so long is not counted."""
MEAN_SIZE_FRAMES = 16
"""The mean size of a message is taken over about so many frames."""


class _ChildAck:
    """A neighbour that we feed with an author's messages."""

    __slots__ = ("acked_at", "lagging_since", "last_contiguous")

    def __init__(self) -> None:
        self.last_contiguous = 0
        self.acked_at = 0.0
        self.lagging_since: float | None = None
        """Since when it has been further behind us than is good for the others."""


class ChildAcks:
    """Of one author: how far those are that we feed, and what we told last."""

    __slots__ = ("_measured_at", "_measured_sequence", "bytes_per_s", "children", "last_acked", "message_bytes")

    def __init__(self, last_contiguous: int, message_bytes: float, now: float) -> None:
        self.children: dict[Link, _ChildAck] = {}
        self.last_acked = last_contiguous
        self.message_bytes = message_bytes
        """Mean size, as it was lately."""
        self.bytes_per_s: float | None = None
        """So much came to the last of those that count; None before it was measured."""
        self._measured_sequence = last_contiguous
        self._measured_at = now

    def measure(self, last_contiguous: int, now: float) -> None:
        """All have it up to here."""
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
        self._authors: dict[PeerId, ChildAcks] = {}
        self.is_window_full = False
        """Whether so much of what we said is under way that we should wait."""

    def on_frame(self, author: PeerId, window: ReceiveWindow, size: int, count: int) -> None:
        """A frame of an author went by, along its tree."""
        acks = self._authors.get(author)
        if acks is None:
            acks = self._authors[author] = ChildAcks(window.last_contiguous, size / count, self._peer.runtime.now())
        acks.message_bytes += (size / count - acks.message_bytes) / MEAN_SIZE_FRAMES
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
        """Tell the one that feeds us, if there is enough to tell; or, if we are the author, see whether to wait."""
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
        """Bytes that may be under way."""
        settings, bytes_per_s = self._peer.settings, acks.bytes_per_s
        if bytes_per_s is None:
            return settings.send_window_bytes_max
        return min(
            settings.send_window_bytes_max, max(settings.send_window_bytes_min, bytes_per_s * settings.send_window_s)
        )

    def _slowest(self, window: ReceiveWindow, acks: ChildAcks, window_bytes: float, now: float) -> int:
        """Up to where all have it that count."""
        settings, size = self._peer.settings, acks.message_bytes
        best = (
            max(fed.last_contiguous for fed in acks.children.values())
            if len(acks.children) > 1
            else window.last_contiguous
        )
        slowest = window.last_contiguous
        for link, child in list(acks.children.items()):
            if (
                now - child.acked_at > ACK_STALE_S
                and (window.last_contiguous - child.last_contiguous) * size > ACK_BYTES
            ):
                # It has not told anything, though there was something to tell: it is fed by another, or stands still.
                del acks.children[link]
                continue
            if (best - child.last_contiguous) * size <= window_bytes / 2:
                child.lagging_since = None
            elif child.lagging_since is None:
                child.lagging_since = now
            if child.lagging_since is not None and (
                now - child.lagging_since >= settings.straggler_timeout_s
                or now - child.acked_at >= settings.stall_grace_s
            ):
                continue
            slowest = min(slowest, child.last_contiguous)
        return slowest

    def recheck(self) -> None:
        """While we wait: somebody may have fallen out of the count."""
        own = self._broadcaster.receiver.windows.get(self._peer.me.peer_id)
        acks = self._authors.get(self._peer.me.peer_id)
        if own is not None and acks is not None:
            self._update(self._peer.me.peer_id, own, acks)

    def remove_child(self, author: PeerId, link: "Link") -> None:
        """This neighbour gets the author's messages another way."""
        acks = self._authors.get(author)
        if acks is not None:
            acks.children.pop(link, None)

    def on_link_lost(self, link: "Link") -> None:
        for acks in self._authors.values():
            acks.children.pop(link, None)
        self.recheck()

    def evict(self, author: PeerId) -> None:
        self._authors.pop(author, None)
