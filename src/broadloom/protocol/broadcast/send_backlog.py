"""What a neighbour that reads slowly is owed. Nothing is stored for it: what it is owed is retained anyway.

As long as a line has room, frames go out as they come. When it is full, only the place is noted from which on each
author is owed, and when there is room again the frames are taken from the retained ones: by priority, and among equals
author by author in turn, so that a loud one does not keep the others waiting. Who falls far behind is spared what has
expired and what has low priority; who falls further behind still gets only names, as over a lazy link of the tree, and
pulls what it wants from whom it likes.
"""

from typing import TYPE_CHECKING

from broadloom.wire.broadcast_frame import Priority
from broadloom.wire.link_messages import Unavailable, UnavailableReason

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.receive_window import ReceiveWindow
    from broadloom.protocol.broadcast.retention import RetainedFrame
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer
    from broadloom.wire import PeerId

NEWEST = (1 << 64) - 1


class _Cursor:
    __slots__ = ("first", "last", "priority")

    def __init__(self, first: int, last: int, priority: int) -> None:
        self.first = first
        self.last = last
        """`NEWEST`: all that follow, also those that come meanwhile."""
        self.priority = priority
        """The highest priority among them: what comes before it must go before it."""


class SendBacklog:
    """Of one link."""

    __slots__ = ("_backlogged_since", "_cursors", "_is_shedding", "_link", "_peer", "_queues", "bytes")

    def __init__(self, peer: "Peer", link: "Link") -> None:
        self._peer = peer
        self._link = link
        self._cursors: dict[PeerId, _Cursor] = {}
        self._queues: dict[int, dict[PeerId, None]] = {}
        """Urgency -> the authors, who has waited longest first."""
        self.bytes = 0
        """About so much is owed."""
        self._is_shedding = False
        self._backlogged_since = 0.0
        """When it fell behind."""

    def __bool__(self) -> bool:
        return bool(self._cursors)

    def add(self, retained: "RetainedFrame") -> None:
        """There is no room for this one now."""
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
        """This neighbour shall have this range of the author's messages."""
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
        """It gets this author's messages another way."""
        cursor = self._cursors.pop(author, None)
        if cursor is not None:
            self._dequeue(author, cursor.priority)

    def drain(self) -> None:
        """There is room: send as much as there is room for."""
        now = self._peer.runtime.now()
        while self._cursors and not self._link.is_congested:
            priority = max(self._queues)
            author = next(iter(self._queues[priority]))
            self._dequeue(author, priority)
            if self._send_next(author, self._cursors[author], now):
                self._queues.setdefault(priority, {})[author] = None  # behind the others
            else:
                del self._cursors[author]
        if not self._cursors:
            self.bytes = 0
            self._is_shedding = False

    def _dequeue(self, author: "PeerId", priority: int) -> None:
        queue = self._queues[priority]
        del queue[author]
        if not queue:
            del self._queues[priority]

    def _send_next(self, author: "PeerId", cursor: _Cursor, now: float) -> bool:
        """One frame; False if there is none left."""
        broadcaster, link = self._peer.broadcaster, self._link
        window = broadcaster.authors.get(author)
        if window is None:
            return False
        retained = next(broadcaster.retention.in_range(author, cursor.first, cursor.last), None)
        if retained is None:
            self._report_unavailable(author, window, cursor)
            return False
        link.lookups += 1
        if retained.first > cursor.first:
            broadcaster.gap_repair.send_unavailable(link, window, author, cursor.first, retained.first - 1)
        cursor.first = retained.last + 1
        self.bytes -= len(retained.frame)
        if retained.received_from == link.peer_id:
            return True  # it brought it to us
        if retained.has_expired(now) or (self._is_shedding and retained.priority < Priority.NORMAL):
            self._peer.counters.low_priority_shed += retained.last - retained.first + 1
            link.send(Unavailable(author, retained.first, retained.last, UnavailableReason.EXPIRED))
        else:
            broadcaster.send(link, author, retained.copy(now))
        return True

    def _report_unavailable(self, author: "PeerId", window: "ReceiveWindow", cursor: _Cursor) -> None:
        """What is left of it is not here (any more); and so are those up to the next that is, so that nobody has to ask
        for them bit by bit."""
        broadcaster = self._peer.broadcaster
        last = min(cursor.last, window.last_known)
        if last < cursor.first:
            return
        following = next(broadcaster.retention.in_range(author, last + 1, NEWEST), None)
        up_to = window.reached if following is None else following.first - 1
        last = max(last, min(up_to, window.reached))
        broadcaster.gap_repair.send_unavailable(self._link, window, author, cursor.first, last)

    def _switch_to_lazy(self) -> None:
        """Too much: it shall ask for what it wants, when it reads again."""
        broadcaster = self._peer.broadcaster
        for author in self._cursors:
            window = broadcaster.authors.get(author)
            if window is not None:
                window.lazy_children[self._link] = None
                broadcaster.plumtree.queue_ihave(self._link, author)
        self._peer.counters.links_switched_to_lazy += 1
        self._cursors.clear()
        self._queues.clear()
        self.bytes = 0
