"""Backfill: fetch messages from before this peer joined, on behalf of a neighbor that lacks them.

A late joiner neither holds earlier messages nor waits for them. When two partitions merge, all neighbors of the peers
that lack a message may be late joiners, which would separate them from the peers that hold it. So a late joiner that is
asked asks its own neighbors, rarely, and passes the frames on to the requester. Its own application does not get them.
"""

from typing import TYPE_CHECKING

from broadloom.protocol.broadcast.retention import RetainedFrame
from broadloom.wire import Frame, PeerId
from broadloom.wire.broadcast_frame import decode_broadcast
from broadloom.wire.link_messages import Want

if TYPE_CHECKING:
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer

BACKFILLS_MAX = 64
"""Authors with a backfill at the same time."""
BACKFILL_INTERVAL_S = 2.0
"""Minimum time between two rounds of requests for one author."""
BACKFILL_TIMEOUT_S = 20.0
"""Frames that arrive later after the last request are ignored."""


class _BackfillRequest:
    __slots__ = ("first", "last", "requested_at", "requesters")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.requesters: dict[Link, None] = {}
        self.requested_at = -BACKFILL_TIMEOUT_S


class Backfill:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._requests: dict[PeerId, _BackfillRequest] = {}

    def fetch_for(self, requester: "Link", author: PeerId, first: int, last: int) -> None:
        now = self._peer.runtime.now()
        request = self._requests.get(author)
        if request is None:
            self._expire(now)
            if len(self._requests) >= BACKFILLS_MAX:
                return
            request = self._requests[author] = _BackfillRequest(first, last)
        request.first, request.last = min(request.first, first), max(request.last, last)
        request.requesters[requester] = None
        if now < request.requested_at + BACKFILL_INTERVAL_S:
            return
        request.requested_at = now
        for link in self._peer.links:
            if link not in request.requesters:
                link.send(Want(author, request.first, request.last))

    def _expire(self, now: float) -> None:
        for author, request in list(self._requests.items()):
            if now > request.requested_at + BACKFILL_TIMEOUT_S:
                del self._requests[author]

    def deliver(self, link: "Link", author: PeerId, first: int, last: int, frame: Frame) -> bool:
        """Pass a frame from before this peer joined on to the requesters. Returns False if there are none."""
        request = self._requests.get(author)
        if request is None or last < request.first or first > request.last:
            return False
        now, broadcaster = self._peer.runtime.now(), self._peer.broadcaster
        if now > request.requested_at + BACKFILL_TIMEOUT_S:
            return False
        if broadcaster.retention.get(author, first) is not None:
            return True  # another neighbor sent it already
        message = decode_broadcast(frame)
        if message.age_ms > 1000 * self._peer.settings.retention_s:
            return False
        if broadcaster.verifier is not None and not broadcaster.verifier.verify(link, frame, message):
            return False
        retained = RetainedFrame.from_message(message, frame, now, link.peer_id)
        broadcaster.retention.add(retained)
        for requester in request.requesters:
            if requester is not link and self._peer.links.get(requester.peer_id) is requester:
                broadcaster.send_retained(requester, retained, now)
        return True
