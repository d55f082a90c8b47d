"""Sets of sequence numbers as intervals: what was received of one author takes a few numbers, however much it was.

Nearly always a number follows the last one, which takes constant time. Otherwise it is a binary search among the gaps,
and the gaps are limited (`GAPS_MAX`).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

Interval = tuple[int, int]


class IntervalSet:
    """Disjoint intervals in order; two that touch are one."""

    __slots__ = ("_firsts", "_lasts", "count")

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self.count = 0
        """Numbers in the set."""
        for first, last in intervals:
            self.add_interval(first, last)

    def __contains__(self, number: int) -> bool:
        if not self._firsts or number > self._lasts[-1]:
            return False
        if number >= self._firsts[-1]:
            return True
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def __iter__(self) -> Iterator[Interval]:
        return zip(self._firsts, self._lasts, strict=True)

    def __len__(self) -> int:
        """Intervals, not numbers."""
        return len(self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and self._firsts == other._firsts and self._lasts == other._lasts

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Intervals({', '.join(f'{first}-{last}' for first, last in self)})"

    @property
    def last(self) -> int:
        """The largest number; 0 if there is none."""
        return self._lasts[-1] if self._lasts else 0

    def copy(self) -> "IntervalSet":
        made = IntervalSet()
        made._firsts, made._lasts, made.count = self._firsts[:], self._lasts[:], self.count
        return made

    def creates_gap(self, number: int) -> bool:
        """Whether it would be an interval of its own."""
        return number not in self and number - 1 not in self and number + 1 not in self

    def add(self, number: int) -> bool:
        """False if it was there."""
        lasts = self._lasts
        if lasts and number == lasts[-1] + 1:
            lasts[-1] = number
            self.count += 1
            return True
        if number in self:
            return False
        self.add_interval(number, number)
        return True

    def add_interval(self, first: int, last: int) -> int:
        """All from first to last; returns how many are new."""
        firsts, lasts = self._firsts, self._lasts
        at = bisect_right(firsts, first)
        if at and lasts[at - 1] >= first - 1:
            at -= 1
        end = bisect_right(firsts, last + 1, at)
        covered = 0
        if end > at:
            covered = sum(lasts[each] - firsts[each] + 1 for each in range(at, end))
            first, last = min(first, firsts[at]), max(last, lasts[end - 1])
        firsts[at:end] = [first]
        lasts[at:end] = [last]
        self.count += last - first + 1 - covered
        return last - first + 1 - covered

    def remove_interval(self, first: int, last: int) -> None:
        """Without these."""
        firsts, lasts = self._firsts, self._lasts
        at = bisect_right(firsts, first)
        if at and lasts[at - 1] >= first:
            at -= 1
        end = bisect_right(firsts, last, at)
        if end <= at:
            return
        kept: list[Interval] = []
        if firsts[at] < first:
            kept.append((firsts[at], first - 1))
        if lasts[end - 1] > last:
            kept.append((last + 1, lasts[end - 1]))
        covered = sum(lasts[each] - firsts[each] + 1 for each in range(at, end))
        firsts[at:end] = [each[0] for each in kept]
        lasts[at:end] = [each[1] for each in kept]
        self.count += sum(high - low + 1 for low, high in kept) - covered

    def covers(self, intervals: Iterable[Interval]) -> bool:
        """Whether all of these are in it."""
        for first, last in intervals:
            at = bisect_right(self._firsts, first) - 1
            if at < 0 or last > self._lasts[at]:
                return False
        return True

    def minus(self, other: "IntervalSet | None") -> "IntervalSet":
        """What is in this and not in the other."""
        made = self.copy()
        if other is not None:
            for first, last in other:
                made.remove_interval(first, last)
        return made
