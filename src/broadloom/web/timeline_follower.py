"""Follow a live timeline into a history while the pages are served.

A cluster logs its changes. Reports about different peers arrive late and out of order, so they are held back for
`SETTLE_S`, and the history is that much behind. If the log dropped changes before they were fetched, the history is
corrected by the current state. One peer's view of a channel has no log of peers and links: it is corrected every time.
"""

import asyncio
import logging
import time
from bisect import bisect_right
from itertools import count
from statistics import median_low

from broadloom.testing.cluster.timeline import (
    Annotation,
    Change,
    LinkAdded,
    LinkRemoved,
    PeerAdded,
    PeerRemoved,
    PeerSnapshot,
    Timeline,
)
from broadloom.web.history import FabricHistory
from broadloom.web.snapshot import PEER_STATS

log = logging.getLogger("broadloom.web")

SETTLE_S = 1.0
POLL_S = 0.2
PEER_STATS_S = 1.0
"""How often the peers' own figures are recorded."""


class TimelineFollower:
    """A live timeline and its history. `run` it."""

    def __init__(self, timeline: Timeline, *, settle_s: float = SETTLE_S, sees_all: bool = True) -> None:
        self.timeline = timeline
        self.sees_all = sees_all
        """False for one peer's view, which is compared with the history at every poll."""
        self._settle_s = settle_s
        self._number = count()
        self._pending: list[tuple[float, int, Change]] = []
        self._stats_at = 0.0
        self._external_peers: dict[int, str] = {}
        self.views: dict[int, PeerSnapshot] = {}
        """The newest state of each peer, by running number."""
        self._next, changes = timeline.changes(0)
        is_complete = bool(changes) and self._next == len(changes)
        self.history = FabricHistory(min(each.at_s for each in changes) if is_complete else time.time())
        if is_complete:
            self._buffer(changes)
        else:
            self._correct(time.time())

    async def run(self) -> None:
        while True:
            try:
                self.poll(time.time())
            except Exception:
                log.exception("following failed; continuing with the current state")
                self._correct(time.time())
            await asyncio.sleep(POLL_S)

    def add_external_peer(self, peer: int, name: str) -> None:
        """A peer that is linked to the timeline's peers but not part of it: the server's own member."""
        self._external_peers[peer] = name
        self._buffer([PeerAdded(time.time(), peer, name)])

    def poll(self, now_s: float) -> None:
        since = self._next
        self._next, changes = self.timeline.changes(since)
        self._buffer(changes)
        if self._next - since > len(changes):
            self._flush_until(now_s)
            text = "more happened than could be followed: this is the fabric as it is now"
            self.history.add_all([Annotation(now_s, text)])
            self._correct(now_s)
        elif not self.sees_all:
            self._correct(now_s)
        self._flush_until(now_s - self._settle_s)
        if now_s - self._stats_at >= PEER_STATS_S:
            self._stats_at = now_s
            self._record_stats(now_s - self._settle_s)

    def _buffer(self, changes: list[Change]) -> None:
        self._pending += [(each.at_s, next(self._number), each) for each in changes]
        self._pending.sort()

    def _flush_until(self, until_s: float) -> None:
        ready = bisect_right(self._pending, until_s, key=lambda each: each[0])
        self.history.add_all(change for _, _, change in self._pending[:ready])
        del self._pending[:ready]
        self.history.end = max(self.history.end, until_s - self.history.began_s)

    def _correct(self, now_s: float) -> None:
        """Add what is missing between the newest snapshot and the current state."""
        views, newest, ids = self.timeline.now(), self.history.newest, self.history.ids
        names = {each.peer_id: each.name for each in views.values()} | self._external_peers
        peers = {ids[number] for number in newest.peers}
        links = {_pair(ids[a], ids[b]) for a, b in newest.links}
        linked = {_pair(each.peer_id, other) for each in views.values() for other in each.links}
        self.history.add_all(
            [
                *(PeerRemoved(now_s, peer, "left") for peer in peers - names.keys()),
                *(PeerAdded(now_s, peer, name) for peer, name in names.items() if peer not in peers),
                *(LinkRemoved(now_s, *pair) for pair in sorted(links - linked)),
                *(LinkAdded(now_s, *pair) for pair in sorted(linked - links)),
            ]
        )

    def _record_stats(self, at_s: float) -> None:
        views, number = self.timeline.now(), self.history.number_of
        self.views = {number(peer): view for peer, view in views.items()}
        if not views:
            return
        estimate = median_low([each.diameter_estimate for each in views.values()])
        free_slots = [[place, view.free_slots] for place, view in self.views.items() if view.free_slots]
        paused = [place for place, view in self.views.items() if view.is_paused]
        stats = (estimate, free_slots, all(each.is_full_mesh for each in views.values()), paused)
        before = self.history.newest.peer_stats
        if before is None or before[2:] != stats:
            self.history.add((round(at_s - self.history.began_s, 4), PEER_STATS, *stats))


def _pair(a: int, b: int) -> tuple[int, int]:
    return (min(a, b), max(a, b))
