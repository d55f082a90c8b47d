"""What happened, as numbered entries in order of time, and the picture at any moment of it.

Everything that a page draws over time comes from here: a lab and a channel are followed into a history
(`following.py`), a tape is read into one (`replay.py`). A browser asks for the picture at a moment, and then for the
entries from there on; it never gets more at once than a named limit, and whoever asks for what is no longer kept is
told to begin with a picture again.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from weft.lab.story import Came, Change, Hop, LinkDown, LinkUp, Missed, Said, Told, Went
from weft.web.picture import CAME, DOWN, HOP, MISSED, SAID, TOLD, UP, WENT, Entry, Picture

ENTRIES_KEPT_MAX = 400_000
"""Of a history that goes on; of a tape, all are kept that were read."""
DROPPED_SHARE = 0.25
"""So much of a full history is forgotten at once."""
KEYFRAME_ENTRIES = 4_000
"""A picture is kept every so many entries, so that any moment is at most so many away."""
ANSWER_ENTRIES_MAX = 6_000
"""In one answer; the browser asks again at once."""
TOLD_KEPT_MAX = 1_000
TOLD_SHOWN = 8
"""Sentences that stand beside a picture."""
BINS = 240
"""Of the outline under the timeline."""


@dataclass(frozen=True, slots=True)
class Part:
    """An answer: entries from a number on, and the number to ask with next."""

    next: int
    entries: list[Entry]
    is_lost: bool = False
    """What was asked for is no longer kept."""


class History:
    """Entries in order of time. `began_s` is the Unix time of their zero."""

    def __init__(self, began_s: float, kept_max: int = ENTRIES_KEPT_MAX) -> None:
        self.began_s = began_s
        self._kept_max = kept_max
        self._entries: list[Entry] = []
        self._first = 0
        """Number of the first entry that is kept."""
        self._keyframes: list[tuple[int, Picture]] = [(0, Picture())]
        """The picture before the entry of that number."""
        self._newest = Picture()
        self._told: deque[Entry] = deque(maxlen=TOLD_KEPT_MAX)
        self._ids: dict[int, int] = {}
        self._figures: tuple[object, dict[str, Any]] = (None, {})
        """The last that were reckoned, and of what: they are asked for again and again."""
        self.end = 0.0
        """Up to here the history is known, entry or not."""

    @property
    def ids(self) -> list[int]:
        """Peer ids by running number."""
        return list(self._ids)

    # -- writing

    def number_of(self, peer: int) -> int:
        """The running number of a peer id."""
        return self._ids.setdefault(peer, len(self._ids))

    def add(self, entry: Entry) -> None:
        """What is earlier than the newest entry counts as just as late."""
        if entry[0] < self.start_of_last:
            entry = (self.start_of_last, *entry[1:])
        self._entries.append(entry)
        self._newest.apply(entry)
        if entry[1] == TOLD:
            self._told.append(entry)
        self.end = max(self.end, entry[0])
        if self.next - self._keyframes[-1][0] >= KEYFRAME_ENTRIES:
            self._keyframes.append((self.next, self._newest.copy()))
        if len(self._entries) > self._kept_max:
            self._forget()

    def add_all(self, changes: Iterable[Change]) -> None:
        for each in changes:
            self.add(self.entry(each))

    def _forget(self) -> None:
        """Up to a keyframe, so that what stays can be drawn."""
        goal = self._first + int(DROPPED_SHARE * len(self._entries))
        self._keyframes = [each for each in self._keyframes if each[0] >= goal]
        first = self._keyframes[0][0]
        del self._entries[: first - self._first]
        self._first = first

    def entry(self, change: Change) -> Entry:
        """A change of a story as an entry."""
        at, number = round(change.at_s - self.began_s, 4), self.number_of
        match change:
            case Hop():
                source, peer = number(change.source), number(change.peer)
                return (at, HOP, number(change.author), change.sequence, source, peer, change.hops)
            case LinkUp():
                return (at, UP, *sorted((number(change.a), number(change.b))))
            case LinkDown():
                return (at, DOWN, *sorted((number(change.a), number(change.b))))
            case Came():
                return (at, CAME, number(change.peer), change.name, f"{change.peer:016x}")
            case Went():
                return (at, WENT, number(change.peer), change.how)
            case Said():
                return (at, SAID, number(change.author), change.sequence, change.size)
            case Missed():
                return (at, MISSED, number(change.peer), number(change.author), change.first, change.last)
            case Told():
                return (at, TOLD, change.text)

    # -- reading

    @property
    def next(self) -> int:
        """Number of the entry that comes next."""
        return self._first + len(self._entries)

    @property
    def start(self) -> float:
        """The earliest moment that can be drawn."""
        return self._entries[0][0] if self._entries else 0.0

    @property
    def start_of_last(self) -> float:
        return self._entries[-1][0] if self._entries else 0.0

    @property
    def newest(self) -> Picture:
        """Not to be changed."""
        return self._newest

    def since(self, number: int, until: float) -> Part:
        """Entries from this number on, up to a moment."""
        if number < self._first or number > self.next:
            return Part(number, [], is_lost=True)
        begin = number - self._first
        end = min(self._place_after(until), begin + ANSWER_ENTRIES_MAX)
        chosen = self._entries[begin : max(begin, end)]
        return Part(number + len(chosen), chosen)

    def at(self, moment: float) -> tuple[int, Picture]:
        """The picture of a moment (of the first one that is kept, if that is later), and the number of the next
        entry."""
        number = self._first + self._place_after(moment)
        if number == self.next:
            return number, self._newest
        place = bisect_right(self._keyframes, number, key=lambda each: each[0]) - 1
        begun, kept = self._keyframes[max(place, 0)]
        picture = kept.copy()
        for entry in self._entries[begun - self._first : max(number, begun) - self._first]:
            picture.apply(entry)
        return max(number, begun), picture

    def told(self, moment: float) -> list[Entry]:
        """The last sentences before a moment."""
        return [entry for entry in self._told if entry[0] <= moment][-TOLD_SHOWN:]

    def figures(self, moment: float) -> dict[str, Any]:
        """What stands beside the drawing of that moment."""
        picture = self.at(moment)[1]
        of = (picture.version, picture.felt, picture.missed)
        if self._figures[0] != of:
            self._figures = (of, picture.figures())
        return self._figures[1]

    def outline(self) -> dict[str, list[int]]:
        """The whole in bins: how many peers there were, how many went without a word, how many links were lost."""
        start, length = self.start, max(self.end - self.start, 1e-6)
        peers, deaths, lost = [0] * BINS, [0] * BINS, [0] * BINS
        count = len(self._keyframes[0][1].peers)
        place = 0
        for entry in self._entries:
            if entry[1] not in (CAME, WENT, DOWN):
                continue
            bin_ = min(int((entry[0] - start) / length * BINS), BINS - 1)
            while place < bin_:
                peers[place] = count
                place += 1
            if entry[1] == CAME:
                count += 1
            elif entry[1] == WENT:
                count -= 1
                deaths[bin_] += entry[3] != "left"
            else:
                lost[bin_] += 1
        peers[place:] = [count] * (BINS - place)
        return {"peers": peers, "deaths": deaths, "lost": lost}

    def _place_after(self, moment: float) -> int:
        """Place of the first entry after that moment."""
        return bisect_right(self._entries, moment, key=lambda each: each[0])
