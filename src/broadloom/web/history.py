"""Numbered entries in order of time, and the fabric at any moment.

Everything that pages draw over time comes from here. Its producers write the changes of a timeline: a live cluster and
one peer's view of a channel through `timeline_follower.py`, a tape through `tape_replay.py`. A browser requests a
snapshot and then the entries after it, at most a named limit at once. If they are no longer kept, it starts again with
a snapshot.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from broadloom.testing.cluster.timeline import Change, LinkAdded, LinkRemoved, PeerAdded
from broadloom.web.snapshot import (
    ANNOTATION,
    LETTERS,
    LINK_REMOVED,
    PEER_ADDED,
    PEER_REMOVED,
    Entry,
    Snapshot,
)

_FIELDS = {kind: [each.name for each in fields(kind) if each.name != "at_s"] for kind in LETTERS}
_PEER_FIELDS = {"peer_id", "author", "source", "a", "b"}
"""Peer IDs, to be replaced by running numbers."""

ENTRIES_MAX = 400_000
"""In a live history; of a tape, all entries read are kept."""
DROPPED_FRACTION = 0.25
"""Fraction of a full history that is dropped at once."""
KEYFRAME_ENTRIES = 4_000
"""Entries between two keyframes."""
CHUNK_ENTRIES_MAX = 6_000
"""Per response; the browser requests the next at once."""
ANNOTATIONS_MAX = 1_000
ANNOTATIONS_SHOWN = 8
"""Sentences shown beside a snapshot."""
BINS = 240
"""Of the overview below the timeline."""


@dataclass(frozen=True, slots=True)
class HistoryChunk:
    """Entries from a number on, and the number to request next."""

    next: int
    entries: list[Entry]
    is_expired: bool = False
    """The requested entries are no longer kept."""


class FabricHistory:
    """Entries in order of time. `began_s` is the Unix time of zero."""

    def __init__(self, began_s: float, entries_max: int = ENTRIES_MAX) -> None:
        self.began_s = began_s
        self._entries_max = entries_max
        self._entries: list[Entry] = []
        self._first = 0
        """Number of the first entry kept."""
        self._keyframes: list[tuple[int, Snapshot]] = [(0, Snapshot())]
        """Snapshots by the number of the entry that follows them."""
        self._newest = Snapshot()
        self._annotations: deque[Entry] = deque(maxlen=ANNOTATIONS_MAX)
        self._ids: dict[int, int] = {}
        self._stats: tuple[object, dict[str, Any]] = (None, {})
        """The last figures and what they were computed from; they are requested repeatedly."""
        self.end = 0.0
        """The history is complete up to here, with or without an entry."""

    @property
    def ids(self) -> list[int]:
        """Peer IDs by running number."""
        return list(self._ids)

    # -- writing

    def number_of(self, peer: int) -> int:
        """The running number of a peer ID."""
        return self._ids.setdefault(peer, len(self._ids))

    def add(self, entry: Entry) -> None:
        """An entry older than the newest one gets the newest one's time."""
        if entry[0] < self.last_at:
            entry = (self.last_at, *entry[1:])
        self._entries.append(entry)
        self._newest.apply(entry)
        if entry[1] == ANNOTATION:
            self._annotations.append(entry)
        self.end = max(self.end, entry[0])
        if self.next - self._keyframes[-1][0] >= KEYFRAME_ENTRIES:
            self._keyframes.append((self.next, self._newest.copy()))
        if len(self._entries) > self._entries_max:
            self._drop_oldest()

    def add_all(self, changes: Iterable[Change]) -> None:
        for each in changes:
            self.add(self.entry(each))

    def _drop_oldest(self) -> None:
        """Drop up to a keyframe, so that the rest can still be drawn."""
        goal = self._first + int(DROPPED_FRACTION * len(self._entries))
        self._keyframes = [each for each in self._keyframes if each[0] >= goal]
        first = self._keyframes[0][0]
        del self._entries[: first - self._first]
        self._first = first

    def entry(self, change: Change) -> Entry:
        """A change of a timeline as an entry."""
        kind = type(change)
        values = [
            self.number_of(getattr(change, name)) if name in _PEER_FIELDS else getattr(change, name)
            for name in _FIELDS[kind]
        ]
        if isinstance(change, LinkAdded | LinkRemoved):
            values.sort()
        elif isinstance(change, PeerAdded):
            values.append(f"{change.peer_id:016x}")
        return (round(change.at_s - self.began_s, 4), LETTERS[kind], *values)

    # -- reading

    @property
    def next(self) -> int:
        """Number of the next entry."""
        return self._first + len(self._entries)

    @property
    def start(self) -> float:
        """The earliest moment that can be drawn."""
        return self._entries[0][0] if self._entries else 0.0

    @property
    def last_at(self) -> float:
        return self._entries[-1][0] if self._entries else 0.0

    @property
    def newest(self) -> Snapshot:
        """Do not modify."""
        return self._newest

    def since(self, number: int, until: float) -> HistoryChunk:
        """Entries from this number up to a moment."""
        if number < self._first or number > self.next:
            return HistoryChunk(number, [], is_expired=True)
        begin = number - self._first
        end = min(self._index_after(until), begin + CHUNK_ENTRIES_MAX)
        chosen = self._entries[begin : max(begin, end)]
        return HistoryChunk(number + len(chosen), chosen)

    def at(self, moment: float) -> tuple[int, Snapshot]:
        """The fabric at a moment (or at the first one kept), and the number of the next entry."""
        number = self._first + self._index_after(moment)
        if number == self.next:
            return number, self._newest
        place = bisect_right(self._keyframes, number, key=lambda each: each[0]) - 1
        begun, keyframe = self._keyframes[max(place, 0)]
        snapshot = keyframe.copy()
        for entry in self._entries[begun - self._first : max(number, begun) - self._first]:
            snapshot.apply(entry)
        return max(number, begun), snapshot

    def annotations(self, moment: float) -> list[Entry]:
        """The last sentences before a moment."""
        return [entry for entry in self._annotations if entry[0] <= moment][-ANNOTATIONS_SHOWN:]

    def stats(self, moment: float) -> dict[str, Any]:
        """The figures beside the drawing at this moment."""
        snapshot = self.at(moment)[1]
        of = (snapshot.version, snapshot.peer_stats, snapshot.missed)
        if self._stats[0] != of:
            self._stats = (of, snapshot.stats())
        return self._stats[1]

    def overview(self) -> dict[str, list[int]]:
        """The whole history in bins: peers, crashes, lost links."""
        start, length = self.start, max(self.end - self.start, 1e-6)
        peers, crashes, lost = [0] * BINS, [0] * BINS, [0] * BINS
        count = len(self._keyframes[0][1].peers)
        place = 0
        for entry in self._entries:
            if entry[1] not in (PEER_ADDED, PEER_REMOVED, LINK_REMOVED):
                continue
            bin_ = min(int((entry[0] - start) / length * BINS), BINS - 1)
            while place < bin_:
                peers[place] = count
                place += 1
            if entry[1] == PEER_ADDED:
                count += 1
            elif entry[1] == PEER_REMOVED:
                count -= 1
                crashes[bin_] += entry[3] != "left"
            else:
                lost[bin_] += 1
        peers[place:] = [count] * (BINS - place)
        return {"peers": peers, "deaths": crashes, "lost": lost}

    def _index_after(self, moment: float) -> int:
        """Index of the first entry after this moment."""
        return bisect_right(self._entries, moment, key=lambda each: each[0])
