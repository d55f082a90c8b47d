"""How far a stream has read: exact sets, told the same way whenever they are the same."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.pipeline.spark_source.offsets import (
    FileNumberSet,
    TapeFilesRemovedError,
    TapeOffset,
    files_between,
    run_and_number,
)

RUN = "20260528T202640-0a1b2c3d"
PLACE = "channel=00/event_date=2026-05-28"


def path(number: int, run: str = RUN) -> str:
    return f"{PLACE}/{run}-{number:06d}.parquet"


@given(st.lists(st.integers(1, 60)))
def test_file_numbers_behave_as_a_set(chosen):
    numbers = FileNumberSet()
    for number in chosen:
        numbers.add(number)
    assert [number for number in range(70) if number in numbers] == sorted(set(chosen))
    assert str(FileNumberSet(str(numbers))) == str(numbers)
    other = FileNumberSet()
    for number in sorted(chosen, reverse=True):
        other.add(number)
    assert str(other) == str(numbers)


def test_offset_of_long_run_is_compact():
    offset = TapeOffset()
    for number in range(1, 5001):
        offset.advance(path(number), 1, 1)
    assert offset.to_json() == {"files": {}, "parts": {}, "runs": {RUN: "1-5000"}}


def test_other_files_are_listed_by_path():
    assert run_and_number(path(7)) == (RUN, 7)
    assert run_and_number(f"{PLACE}/merged-000001.parquet") is None
    offset = TapeOffset()
    offset.advance(f"{PLACE}/merged-000001.parquet", 2, 2)
    assert offset.row_groups_read(f"{PLACE}/merged-000001.parquet") is None
    assert offset.row_groups_read(f"{PLACE}/merged-000002.parquet") == 0


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=1), st.integers(0, 30))
def test_files_between_offsets_are_exactly_the_added_ones(files, cut):
    """Whatever was read when, both parts together are the whole, without doubles."""
    groups = {path(number): count for number, count in files}
    every = [(name, group) for name, count in groups.items() for group in range(count)]
    start, middle, end = TapeOffset(), TapeOffset(), TapeOffset()
    for place, (name, group) in enumerate(every):
        if place < cut:
            middle.advance(name, group + 1, groups[name])
        end.advance(name, group + 1, groups[name])
    middle = TapeOffset.from_json(json.loads(json.dumps(middle.to_json())))

    def read(first: TapeOffset, last: TapeOffset) -> list[tuple[str, int]]:
        return [(name, group) for name, low, high in files_between(first, last, groups) for group in range(low, high)]

    assert sorted(read(start, middle) + read(middle, end)) == sorted(every)
    assert read(end, end) == []


def test_removed_file_raises_error():
    start, end = TapeOffset(), TapeOffset()
    end.advance(path(1), 1, 1)
    end.advance(path(2), 1, 1)
    with pytest.raises(TapeFilesRemovedError, match="put them back"):
        files_between(start, end, {path(1): 1})
