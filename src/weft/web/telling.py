"""What a tape does not say in words, found while it is read: holes, parts, deaths, and how soon all was well again.

The rule: it looks at the picture as it is drawn, so what it tells is what a person can see.
"""

from collections import Counter
from collections.abc import Iterator

from weft.lab.story import Came, Change, LinkDown, LinkUp, Told, Went
from weft.web.history import History
from weft.web.picture import FELT, Entry
from weft.web.shape import parts_of

LOOK_S = 0.25
"""How often the whole is looked at, in the time of the tape; less often if that would be more than `LOOKS_MAX`."""
LOOKS_MAX = 4_000
TOGETHER_S = 0.5
"""Deaths so close to each other are told in one sentence."""
DEGREE = 4
"""Links that a peer keeps, if the tape does not show it."""


def tell_repairs(history: History, changes: list[Change], estimates: list[tuple[float, int]]) -> Iterator[Entry]:
    """The entries of these changes, which are in order of time, with what can be told about them in between.

    Each entry has to be added to the history before the next one is asked for.
    """
    if changes:
        yield from _Telling(history, changes, estimates).entries()


class _Telling:
    def __init__(self, history: History, changes: list[Change], estimates: list[tuple[float, int]]) -> None:
        self._history = history
        self._changes = changes
        self._estimates = estimates[::-1]
        self._estimate: int | None = None
        self._degree = degree_of(changes)
        self._links: Counter[int] = Counter()
        """By peer."""
        self._there: set[int] = set()
        self._holes = 0
        self._look_s = max(LOOK_S, (changes[-1].at_s - changes[0].at_s) / LOOKS_MAX)
        self._parts, self._parts_before = 1, 1
        """As told, and at the last look."""
        self._dead: list[float] = []
        """Times of deaths that are not made good yet."""
        self._dead_told = 0
        self._felt: tuple[object, ...] = ()
        self._has_been_whole = False

    def entries(self) -> Iterator[Entry]:
        look_at = self._changes[0].at_s + self._look_s
        for change in self._changes:
            while change.at_s > look_at:
                yield from self._look(look_at)
                look_at += self._look_s
                if not self._dead and change.at_s > look_at:
                    look_at = change.at_s  # nothing can have changed in between
            yield self._history.entry(change)
            before = self._holes
            self._count(change)
            if self._dead and self._holes < before and self._holes <= 1:
                yield from self._repaired(change.at_s)
        yield from self._look(self._changes[-1].at_s)

    def _count(self, change: Change) -> None:
        if isinstance(change, LinkUp | LinkDown):
            for peer in (change.a, change.b):
                self._recount(peer, 1 if isinstance(change, LinkUp) else -1)
        elif isinstance(change, Came):
            self._holes += max(0, self._degree - self._links[change.peer])
            self._there.add(change.peer)
        elif isinstance(change, Went):
            self._there.discard(change.peer)
            self._holes -= max(0, self._degree - self._links[change.peer])
            if change.how != "left":
                self._dead.append(change.at_s)

    def _recount(self, peer: int, by: int) -> None:
        before = max(0, self._degree - self._links[peer])
        self._links[peer] += by
        if peer in self._there:
            self._holes += max(0, self._degree - self._links[peer]) - before

    def _look(self, at_s: float) -> Iterator[Entry]:
        """What the peers feel, and what a person would remark."""
        at = at_s - self._history.began_s
        picture = self._history.newest
        parts = len(parts_of(picture.peers, picture.drawn_links()))
        if parts == 1 and len(self._there) > 1:
            self._has_been_whole = True
        if self._dead and self._dead_told < len(self._dead) and at_s - self._dead[-1] >= TOGETHER_S:
            yield self._told(at_s, _died(len(self._dead) - self._dead_told))
            self._dead_told = len(self._dead)
        if self._has_been_whole and parts != self._parts and parts == self._parts_before:
            yield self._told(at_s, f"the fabric is in {parts} parts" if parts > 1 else "the fabric is one again")
            self._parts = parts
        self._parts_before = parts
        while self._estimates and self._estimates[-1][0] <= at_s:
            self._estimate = self._estimates.pop()[1]
        is_small = len(self._there) <= self._degree + 1
        holes = [] if is_small else self._lacking()
        felt = (self._estimate, holes, is_small)
        if felt != self._felt:
            self._felt = felt
            yield (round(at, 4), FELT, *felt, [])

    def _lacking(self) -> list[list[int]]:
        number = self._history.number_of
        lacking = ((peer, self._degree - self._links[peer]) for peer in self._there)
        return sorted([number(peer), count] for peer, count in lacking if count > 0)

    def _repaired(self, at_s: float) -> Iterator[Entry]:
        picture = self._history.newest
        if len(parts_of(picture.peers, picture.drawn_links())) > 1:
            return
        if self._dead_told < len(self._dead):
            yield self._told(at_s, _died(len(self._dead) - self._dead_told))
        yield self._told(at_s, f"all have their links again, {at_s - self._dead[0]:.1f} s after the first died")
        self._dead, self._dead_told = [], 0

    def _told(self, at_s: float, text: str) -> Entry:
        return self._history.entry(Told(at_s, text))


def _died(count: int) -> str:
    return "a peer died" if count == 1 else f"{count} peers died"


def degree_of(changes: list[Change]) -> int:
    """Links that each peer keeps: what most of them have in the end."""
    links: Counter[int] = Counter()
    there: set[int] = set()
    for change in changes:
        if isinstance(change, LinkUp | LinkDown):
            for peer in (change.a, change.b):
                links[peer] += 1 if isinstance(change, LinkUp) else -1
        elif isinstance(change, Came):
            there.add(change.peer)
        elif isinstance(change, Went):
            there.discard(change.peer)
    counts = Counter(links[peer] for peer in there)
    common = counts.most_common(1)[0][0] if counts else DEGREE
    return common if len(there) > common + 1 else max(common, DEGREE)
