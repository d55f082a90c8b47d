"""Intervals behave like sets of numbers."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from broadloom.groups.intervals import IntervalSet

numbers = st.integers(1, 60)
spans = st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))
steps = st.lists(st.tuples(st.sampled_from(["add", "span", "remove"]), spans), max_size=40)


def as_set(intervals: IntervalSet) -> set[int]:
    return {number for first, last in intervals for number in range(first, last + 1)}


@given(steps)
def test_like_a_set(done: list[tuple[str, tuple[int, int]]]) -> None:
    intervals, model = IntervalSet(), set[int]()
    for what, (first, last) in done:
        if what == "add":
            assert intervals.add(first) == (first not in model)
            model.add(first)
        elif what == "span":
            new = set(range(first, last + 1)) - model
            assert intervals.add_interval(first, last) == len(new)
            model |= new
        else:
            intervals.remove_interval(first, last)
            model -= set(range(first, last + 1))
        assert as_set(intervals) == model
        assert intervals.count == len(model)
        assert intervals.last == max(model, default=0)
        assert all(number in intervals for number in model)
        assert all((number in intervals) == (number in model) for number in range(0, 63))
        assert intervals.creates_gap(first) == (not model & {first - 1, first, first + 1})
    gaps = list(intervals)
    assert all(left[1] + 1 < right[0] for left, right in pairwise(gaps)), "two touch"


@given(st.lists(spans), st.lists(spans))
def test_difference_and_cover(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    left, right = IntervalSet(some), IntervalSet(others)
    assert as_set(left.minus(right)) == as_set(left) - as_set(right)
    assert left.covers(right) == (as_set(right) <= as_set(left))
    assert left.copy() == left
