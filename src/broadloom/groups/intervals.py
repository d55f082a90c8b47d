"""Sets of sequence numbers, stored as intervals: the messages received from one author take a few integers.

Appending the next number, the common case, takes constant time. Otherwise it is a binary search among the gaps, whose
number is limited (`GAPS_MAX`).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

Interval = tuple[int, int]


class IntervalSet:
    """Sorted, disjoint intervals. Adjacent ones are merged."""

    __slots__ = ("_firsts", "_lasts", "count")

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self.count = 0
        """Numbers in the set, as opposed to `len()`, which counts intervals."""
        self.update(intervals)

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
        return len(self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and self._firsts == other._firsts and self._lasts == other._lasts

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"IntervalSet({', '.join(f'{first}-{last}' for first, last in self)})"

    @property
    def last(self) -> int:
        """The largest number; 0 if the set is empty."""
        return self._lasts[-1] if self._lasts else 0

    def copy(self) -> "IntervalSet":
        copied = IntervalSet()
        copied._firsts, copied._lasts, copied.count = self._firsts[:], self._lasts[:], self.count
        return copied

    def creates_gap(self, number: int) -> bool:
        """Whether adding `number` would add an interval."""
        return number not in self and number - 1 not in self and number + 1 not in self

    def add(self, number: int) -> bool:
        """Returns False if it was already there."""
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
        """Add all numbers from `first` to `last`; returns how many are new."""
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

    def update(self, intervals: Iterable[Interval]) -> None:
        for first, last in intervals:
            self.add_interval(first, last)

    def remove_interval(self, first: int, last: int) -> None:
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
        for first, last in intervals:
            at = bisect_right(self._firsts, first) - 1
            if at < 0 or last > self._lasts[at]:
                return False
        return True

    def minus(self, other: "IntervalSet | None") -> "IntervalSet":
        rest = self.copy()
        for first, last in other or ():
            rest.remove_interval(first, last)
        return rest
