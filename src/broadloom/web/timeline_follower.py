"""Follow a live timeline into a history while the pages are served.

Reports about different peers arrive late and out of order, so they are held back for `SETTLE_S`, and the history is
that much behind. If the timeline dropped changes before they were fetched, the history is corrected by the current
state.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
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
        """Whether the timeline covers the whole fabric."""
        self._settle_s = settle_s
        self._next = 0
        self._number = count()
        self._pending: list[tuple[float, int, Change]] = []
        self._stats_at = 0.0
        self.history = FabricHistory(time.time())
        self._external_peers: dict[int, str] = {}
        self.views: dict[int, PeerSnapshot] = {}
        """The newest state of each peer, by running number."""
        self._begin()

    async def run(self) -> None:
        while True:
            try:
                self.poll(time.time())
            except Exception:
                log.exception("following failed; it goes on with what is true now")
                self._begin()
            await asyncio.sleep(POLL_S)

    def _begin(self) -> None:
        self._next, changes = self.timeline.changes(0)
        if self._next == len(changes) and changes and self.history.next == 0:
            self.history = FabricHistory(min(each.at_s for each in changes))
            self._buffer(changes)
        else:
            self._resync(time.time())

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
            self._resync(now_s)
        self._flush_until(now_s - self._settle_s)
        if now_s - self._stats_at >= PEER_STATS_S:
            self._stats_at = now_s
            self._record_stats(now_s - self._settle_s)

    def _buffer(self, changes: list[Change]) -> None:
        self._pending += [(each.at_s, next(self._number), each) for each in changes]
        self._pending.sort()

    def _flush_until(self, until_s: float) -> None:
        ready = 0
        for at_s, _, change in self._pending:
            if at_s > until_s:
                break
            self.history.add(self.history.entry(change))
            ready += 1
        del self._pending[:ready]
        self.history.end = max(self.history.end, until_s - self.history.began_s)

    def _resync(self, now_s: float) -> None:
        self._pending.clear()
        self.history.add_all(self._differences(now_s))

    def _differences(self, now_s: float) -> Iterator[Change]:
        """From the newest snapshot to the current state."""
        views, snapshot, number = self.timeline.now(), self.history.newest, self.history.number_of
        present = {number(peer) for peer in (*views, *self._external_peers)}
        known = {number(peer): peer for peer in self.history.ids}
        if snapshot.peers:
            yield Annotation(now_s, "more happened than could be followed: this is the fabric as it is now")
        for departed in [each for each in snapshot.peers if each not in present]:
            yield PeerRemoved(now_s, known[departed], "left")
        for peer, name in [*((each.peer_id, each.name) for each in views.values()), *self._external_peers.items()]:
            if number(peer) not in snapshot.peers:
                yield PeerAdded(now_s, peer, name)
        links = {
            tuple(sorted((number(each.peer_id), number(other)))) for each in views.values() for other in each.links
        }
        known = {number(peer): peer for peer in self.history.ids}
        for a, b in [each for each in snapshot.links if each not in links]:
            yield LinkRemoved(now_s, known[a], known[b])
        for a, b in sorted(links - snapshot.links.keys()):
            yield LinkAdded(now_s, known[a], known[b])

    def _record_stats(self, at_s: float) -> None:
        views, number = self.timeline.now(), self.history.number_of
        self.views = {number(peer): view for peer, view in views.items()}
        if not views:
            return
        estimate = median_low([each.diameter_estimate for each in views.values()])
        free_slots = [[place, view.free_slots] for place, view in self.views.items() if view.free_slots]
        paused = [place for place, view in self.views.items() if view.is_paused]
        is_small = all(each.is_full_mesh for each in views.values())
        stats = (estimate, free_slots, is_small, paused)
        before = self.history.newest.peer_stats
        if before is None or before[2:] != stats:
            self.history.add((round(at_s - self.history.began_s, 4), PEER_STATS, *stats))
