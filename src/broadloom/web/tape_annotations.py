"""Events that a tape implies, found while replaying it: free slots, partitions, crashes and repairs.

They are derived from the fabric as it is drawn, so they describe what a viewer can see.
"""

from collections import Counter
from collections.abc import Iterator

from broadloom.testing.cluster.timeline import Annotation, Change, LinkAdded, PeerAdded, PeerRemoved
from broadloom.web.history import FabricHistory
from broadloom.web.snapshot import PEER_STATS, Entry, Snapshot

CHECK_INTERVAL_S = 0.25
"""How often the fabric is examined, in tape time; less often if that would exceed `CHECKS_MAX`."""
CHECKS_MAX = 4_000
CRASH_GROUPING_S = 0.5
"""Crashes this close together are reported in one sentence."""
DEGREE = 4
"""Links per peer, if the tape does not show it."""


class TapeAnnotator:
    """Fills a history with changes in order of time, and with annotations in between."""

    def __init__(
        self, history: FabricHistory, changes: list[Change], estimates: list[tuple[float, int]], degree: int
    ) -> None:
        """`estimates`: the peers' diameter estimate and since when. `degree`: the most links that a peer recorded."""
        self._history = history
        self._changes = changes
        self._estimates = estimates[::-1]
        self._estimate: int | None = None
        is_small = sum(isinstance(each, PeerAdded) for each in changes) <= degree + 1
        self._degree = max(degree, DEGREE) if is_small else degree
        self._partitions, self._partitions_before = 1, 1
        """As reported, and as last examined."""
        self._was_connected = False
        self._crashes: list[float] = []
        """Times of crashes that are not repaired yet."""
        self._crashes_reported = 0
        self._link_added_s = 0.0

    def run(self) -> None:
        first, last = self._changes[0], self._changes[-1]
        interval_s = max(CHECK_INTERVAL_S, (last.at_s - first.at_s) / CHECKS_MAX)
        check_at = first.at_s + interval_s
        for change in self._changes:
            while change.at_s > check_at:
                self._check(check_at)
                check_at += interval_s
                if not self._crashes and change.at_s > check_at:
                    check_at = change.at_s  # nothing can have changed in between
            self._history.add(self._history.entry(change))
            if isinstance(change, LinkAdded):
                self._link_added_s = change.at_s
            elif isinstance(change, PeerRemoved) and change.reason != "left":
                self._crashes.append(change.at_s)
        self._check(last.at_s)

    def _check(self, at_s: float) -> None:
        snapshot = self._history.newest
        partitions = snapshot.partition_count()
        is_small = len(snapshot.peers) <= self._degree + 1
        degrees = _degrees(snapshot)
        free_slots = sorted([peer, self._degree - n] for peer, n in degrees.items() if n < self._degree)
        self._history.add_all(Annotation(at_s, text) for text in self._findings(at_s, partitions, free_slots))
        while self._estimates and self._estimates[-1][0] <= at_s:
            self._estimate = self._estimates.pop()[1]
        stats: Entry = (self._estimate, [] if is_small else free_slots, is_small, [])
        if snapshot.peer_stats is None or stats != snapshot.peer_stats[2:]:
            self._history.add((round(at_s - self._history.began_s, 4), PEER_STATS, *stats))

    def _findings(self, at_s: float, partitions: int, free_slots: list[list[int]]) -> Iterator[str]:
        """Sentences for the log."""
        crashes = self._crashes
        is_repaired = (
            bool(crashes)
            and partitions == 1
            and self._link_added_s > crashes[0]
            and sum(count for _, count in free_slots) <= 1
        )
        unreported = len(crashes) - self._crashes_reported
        if unreported and (is_repaired or at_s - crashes[-1] >= CRASH_GROUPING_S):
            yield "a peer crashed" if unreported == 1 else f"{unreported} peers crashed"
            self._crashes_reported = len(crashes)
        if is_repaired:
            yield f"all links are repaired, {self._link_added_s - crashes[0]:.1f} s after the first crash"
            self._crashes, self._crashes_reported = [], 0
        self._was_connected |= partitions == 1 and len(self._history.newest.peers) > 1
        if self._was_connected and partitions != self._partitions and partitions == self._partitions_before:
            yield f"the fabric has {partitions} partitions" if partitions > 1 else "the fabric is connected again"
            self._partitions = partitions
        self._partitions_before = partitions


def _degrees(snapshot: Snapshot) -> dict[int, int]:
    """Links of each peer, including those to peers that are not on the tape."""
    ends = Counter(end for pair in snapshot.links for end in pair)
    return {peer: ends[peer] for peer in snapshot.peers}
