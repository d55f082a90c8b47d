"""Interval sets behave like sets of numbers."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from broadloom.groups.intervals import IntervalSet

numbers = st.integers(1, 60)
pairs = st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))
operation_lists = st.lists(st.tuples(st.sampled_from(["add", "interval", "remove"]), pairs), max_size=40)


def as_set(intervals: IntervalSet) -> set[int]:
    return {number for first, last in intervals for number in range(first, last + 1)}


@given(operation_lists)
def test_interval_set_behaves_like_set(operations: list[tuple[str, tuple[int, int]]]) -> None:
    intervals, model = IntervalSet(), set[int]()
    for operation, (first, last) in operations:
        if operation == "add":
            assert intervals.add(first) == (first not in model)
            model.add(first)
        elif operation == "interval":
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
    found = list(intervals)
    assert all(left[1] + 1 < right[0] for left, right in pairwise(found)), "adjacent intervals are merged"


@given(st.lists(pairs), st.lists(pairs))
def test_interval_difference_and_cover_match_sets(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    left, right = IntervalSet(some), IntervalSet(others)
    assert as_set(left.minus(right)) == as_set(left) - as_set(right)
    assert left.covers(right) == (as_set(right) <= as_set(left))
    assert left.copy() == left
