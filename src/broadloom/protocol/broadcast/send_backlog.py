"""The send backlog of a congested link: cursors into retention instead of a queue of frames.

While a connection has room, frames go out as they come. When it is congested, only the position is noted from which on
each author's frames are due; they are retained anyway. When there is room again, frames are taken from retention by
priority, and round-robin over the authors of one priority. A neighbor with a long backlog is spared low-priority and
expired messages; with a longer one its link becomes lazy: it gets `IHave` and pulls what it wants, from any neighbor.
"""

from typing import TYPE_CHECKING

from broadloom.wire.broadcast_frame import Priority
from broadloom.wire.link_messages import UnavailableReason

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.receive_window import ReceiveWindow
    from broadloom.protocol.broadcast.retention import RetainedFrame
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer
    from broadloom.wire import PeerId

NEWEST = (1 << 64) - 1
PULL_S = 10.0
"""A neighbor that has been reading again for this long has pulled what it was not sent, from any neighbor."""


class _Cursor:
    __slots__ = ("first", "last", "priority")

    def __init__(self, first: int, last: int, priority: int) -> None:
        self.first = first
        self.last = last
        """`NEWEST` includes messages that arrive later."""
        self.priority = priority
        """The highest priority of the range: an author's earlier messages must be sent before it."""


class SendBacklog:
    __slots__ = ("_backlogged_since", "_cursors", "_is_shedding", "_link", "_own_skipped", "_peer", "_queues", "bytes")

    def __init__(self, peer: "Peer", link: "Link") -> None:
        self._peer = peer
        self._link = link
        self._cursors: dict[PeerId, _Cursor] = {}
        self._queues: dict[int, dict[PeerId, None]] = {}
        """Per priority, the authors in the order of their turn."""
        self.bytes = 0
        """Approximate size."""
        self._is_shedding = False
        self._backlogged_since = 0.0
        self._own_skipped: tuple[int, float | None] | None = None
        """The first message of this peer that the neighbor has to pull, and since when it reads again."""

    def __bool__(self) -> bool:
        return bool(self._cursors)

    def add(self, retained: "RetainedFrame") -> None:
        if not self._cursors:
            self._backlogged_since = self._peer.runtime.now()
        self.rewind(retained.author, retained.first, priority=retained.priority)
        self.bytes += len(retained.frame)
        settings = self._peer.settings
        if self.bytes > settings.backlog_shed_bytes:
            self._is_shedding = True
            if (
                self.bytes > settings.backlog_lazy_bytes
                and self._peer.runtime.now() - self._backlogged_since > settings.straggler_timeout_s
            ):
                self._switch_to_lazy()

    def rewind(self, author: "PeerId", first: int, last: int = NEWEST, *, priority: int = Priority.NORMAL) -> None:
        """Include a range of the author's messages."""
        if self._own_skipped is not None and author == self._peer.me.peer_id and first <= self._own_skipped[0] <= last:
            self._own_skipped = (last + 1, self._own_skipped[1]) if last < NEWEST else None  # the others are sent now
        cursor = self._cursors.get(author)
        if cursor is None:
            self._cursors[author] = _Cursor(first, last, priority)
            self._queues.setdefault(priority, {})[author] = None
            return
        cursor.first, cursor.last = min(cursor.first, first), max(cursor.last, last)
        if priority > cursor.priority:
            self._dequeue(author, cursor.priority)
            cursor.priority = priority
            self._queues.setdefault(priority, {})[author] = None

    def drop(self, author: "PeerId") -> None:
        cursor = self._cursors.pop(author, None)
        if cursor is not None:
            self._dequeue(author, cursor.priority)
            self._reset_if_empty()

    def drain(self) -> None:
        """Send until the link is congested again."""
        now = self._peer.runtime.now()
        while self._cursors and not self._link.is_congested:
            priority = max(self._queues)
            author = next(iter(self._queues[priority]))
            self._dequeue(author, priority)
            if self._send_next(author, self._cursors[author], now):
                self._queues.setdefault(priority, {})[author] = None  # to the end of the queue
            else:
                del self._cursors[author]
        self._reset_if_empty()

    def _reset_if_empty(self) -> None:
        if not self._cursors:
            self.bytes = 0
            self._is_shedding = False

    def _dequeue(self, author: "PeerId", priority: int) -> None:
        queue = self._queues[priority]
        del queue[author]
        if not queue:
            del self._queues[priority]

    def _send_next(self, author: "PeerId", cursor: _Cursor, now: float) -> bool:
        """Send one frame; returns False if there is none left."""
        broadcaster, link = self._peer.broadcaster, self._link
        window = broadcaster.receiver.windows.get(author)
        if window is None:
            return False
        retained = next(broadcaster.retention.in_range(author, cursor.first, cursor.last), None)
        if retained is None:
            self._report_unavailable(author, window, cursor)
            return False
        link.count_lookup()
        if retained.first > cursor.first:
            broadcaster.gap_repair.send_unavailable(link, window, author, cursor.first, retained.first - 1)
        cursor.first = retained.last + 1
        self.bytes -= len(retained.frame)
        if retained.received_from == link.peer_id:
            return True
        if retained.has_expired(now) or (self._is_shedding and retained.priority < Priority.NORMAL):
            self._peer.counters.backlog_shed += retained.last - retained.first + 1
            broadcaster.gap_repair.send_unavailable_range(
                link, author, retained.first, retained.last, UnavailableReason.DROPPED
            )
        else:
            broadcaster.send(link, author, *retained.copy(now))
        return True

    def _report_unavailable(self, author: "PeerId", window: "ReceiveWindow", cursor: _Cursor) -> None:
        """Report the rest of the range as unavailable, extended to the next retained frame, so that the neighbor need
        not ask bit by bit."""
        broadcaster = self._peer.broadcaster
        last = min(cursor.last, window.last_known)
        if last < cursor.first:
            return
        following = next(broadcaster.retention.in_range(author, last + 1, NEWEST), None)
        up_to = window.reached if following is None else following.first - 1
        last = max(last, min(up_to, window.reached))
        broadcaster.gap_repair.send_unavailable(self._link, window, author, cursor.first, last)

    def push_own(self) -> None:
        """This peer is about to leave: push its own messages that the neighbor would have to pull."""
        if self._own_skipped is not None:
            first, reads_since = self._own_skipped
            if reads_since is None or self._peer.runtime.now() - reads_since < PULL_S:
                self.rewind(self._peer.me.peer_id, first)
                self.drain()

    def on_writable(self) -> None:
        if self._own_skipped is not None and self._own_skipped[1] is None:
            self._own_skipped = self._own_skipped[0], self._peer.runtime.now()
        if self._cursors:
            self.drain()

    def _switch_to_lazy(self) -> None:
        if self._peer.broadcaster.is_leaving:
            return
        own = self._cursors.get(self._peer.me.peer_id)
        if own is not None:
            first = own.first if self._own_skipped is None else min(own.first, self._own_skipped[0])
            self._own_skipped = first, None
        for author in self._cursors:
            self._peer.broadcaster.plumtree.make_lazy(self._link, author)
        self._peer.counters.links_switched_to_lazy += 1
        self._cursors.clear()
        self._queues.clear()
        self._reset_if_empty()
