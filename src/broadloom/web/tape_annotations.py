"""Events that a tape implies, found while replaying it: free slots, partitions, crashes and repairs.

They are derived from the fabric as it is drawn, so they describe what a viewer can see.
"""

from collections import Counter
from collections.abc import Iterator

from broadloom.testing.cluster.timeline import Annotation, Change, LinkAdded, LinkRemoved, PeerAdded, PeerRemoved
from broadloom.topology import connected_components, link_adjacency
from broadloom.web.history import FabricHistory
from broadloom.web.snapshot import PEER_STATS, Entry

CHECK_INTERVAL_S = 0.25
"""How often the fabric is examined, in tape time; less often if that would exceed `LOOKS_MAX`."""
CHECKS_MAX = 4_000
CRASH_GROUPING_S = 0.5
"""Crashes this close together are reported in one sentence."""
DEGREE = 4
"""Links per peer, if the tape does not show it."""


def annotate_repairs(
    history: FabricHistory, changes: list[Change], estimates: list[tuple[float, int]]
) -> Iterator[Entry]:
    """The entries of these changes, in order of time, with annotations in between.

    Add each entry to the history before requesting the next.
    """
    if changes:
        yield from _TapeAnnotator(history, changes, estimates).entries()


class _TapeAnnotator:
    def __init__(self, history: FabricHistory, changes: list[Change], estimates: list[tuple[float, int]]) -> None:
        self._history = history
        self._changes = changes
        self._estimates = estimates[::-1]
        self._estimate: int | None = None
        self._degree = infer_degree(changes)
        self._links: Counter[int] = Counter()
        """By peer."""
        self._present: set[int] = set()
        self._free_slots = 0
        self._check_interval_s = max(CHECK_INTERVAL_S, (changes[-1].at_s - changes[0].at_s) / CHECKS_MAX)
        self._partitions, self._partitions_before = 1, 1
        """As reported, and as last examined."""
        self._crashes: list[float] = []
        """Times of crashes that are not repaired yet."""
        self._crashes_reported = 0
        self._peer_stats: tuple[object, ...] = ()
        self._was_connected = False

    def entries(self) -> Iterator[Entry]:
        check_at = self._changes[0].at_s + self._check_interval_s
        for change in self._changes:
            while change.at_s > check_at:
                yield from self._check(check_at)
                check_at += self._check_interval_s
                if not self._crashes and change.at_s > check_at:
                    check_at = change.at_s  # nothing can have changed in between
            yield self._history.entry(change)
            before = self._free_slots
            self._count(change)
            if self._crashes and self._free_slots < before and self._free_slots <= 1:
                yield from self._repaired(change.at_s)
        yield from self._check(self._changes[-1].at_s)

    def _count(self, change: Change) -> None:
        if isinstance(change, LinkAdded | LinkRemoved):
            for peer in (change.a, change.b):
                self._recount(peer, 1 if isinstance(change, LinkAdded) else -1)
        elif isinstance(change, PeerAdded):
            self._free_slots += max(0, self._degree - self._links[change.peer_id])
            self._present.add(change.peer_id)
        elif isinstance(change, PeerRemoved):
            self._present.discard(change.peer_id)
            self._free_slots -= max(0, self._degree - self._links[change.peer_id])
            if change.reason != "left":
                self._crashes.append(change.at_s)

    def _recount(self, peer: int, by: int) -> None:
        before = max(0, self._degree - self._links[peer])
        self._links[peer] += by
        if peer in self._present:
            self._free_slots += max(0, self._degree - self._links[peer]) - before

    def _check(self, at_s: float) -> Iterator[Entry]:
        """The figures of the peers, and annotations for the log."""
        at = at_s - self._history.began_s
        snapshot = self._history.newest
        partitions = len(connected_components(link_adjacency(snapshot.peers, snapshot.visible_links())))
        if partitions == 1 and len(self._present) > 1:
            self._was_connected = True
        if (
            self._crashes
            and self._crashes_reported < len(self._crashes)
            and at_s - self._crashes[-1] >= CRASH_GROUPING_S
        ):
            yield self._annotation(at_s, _crash_text(len(self._crashes) - self._crashes_reported))
            self._crashes_reported = len(self._crashes)
        if self._was_connected and partitions != self._partitions and partitions == self._partitions_before:
            yield self._annotation(
                at_s, f"the fabric is in {partitions} parts" if partitions > 1 else "the fabric is one again"
            )
            self._partitions = partitions
        self._partitions_before = partitions
        while self._estimates and self._estimates[-1][0] <= at_s:
            self._estimate = self._estimates.pop()[1]
        is_small = len(self._present) <= self._degree + 1
        free_slots = [] if is_small else self._peers_with_free_slots()
        stats = (self._estimate, free_slots, is_small)
        if stats != self._peer_stats:
            self._peer_stats = stats
            yield (round(at, 4), PEER_STATS, *stats, [])

    def _peers_with_free_slots(self) -> list[list[int]]:
        number = self._history.number_of
        free_slots = ((peer, self._degree - self._links[peer]) for peer in self._present)
        return sorted([number(peer), count] for peer, count in free_slots if count > 0)

    def _repaired(self, at_s: float) -> Iterator[Entry]:
        snapshot = self._history.newest
        if len(connected_components(link_adjacency(snapshot.peers, snapshot.visible_links()))) > 1:
            return
        if self._crashes_reported < len(self._crashes):
            yield self._annotation(at_s, _crash_text(len(self._crashes) - self._crashes_reported))
        yield self._annotation(
            at_s, f"all have their links again, {at_s - self._crashes[0]:.1f} s after the first died"
        )
        self._crashes, self._crashes_reported = [], 0

    def _annotation(self, at_s: float, text: str) -> Entry:
        return self._history.entry(Annotation(at_s, text))


def _crash_text(count: int) -> str:
    return "a peer died" if count == 1 else f"{count} peers died"


def infer_degree(changes: list[Change]) -> int:
    """Links per peer: the most common number at the end."""
    links: Counter[int] = Counter()
    present: set[int] = set()
    for change in changes:
        if isinstance(change, LinkAdded | LinkRemoved):
            for peer in (change.a, change.b):
                links[peer] += 1 if isinstance(change, LinkAdded) else -1
        elif isinstance(change, PeerAdded):
            present.add(change.peer_id)
        elif isinstance(change, PeerRemoved):
            present.discard(change.peer_id)
    counts = Counter(links[peer] for peer in present)
    common = counts.most_common(1)[0][0] if counts else DEGREE
    return common if len(present) > common + 1 else max(common, DEGREE)
