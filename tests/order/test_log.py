"""The log: where two logs fork, numbers without gaps, the hash chain, limits."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.order.log import NO_CHAIN, EpochStart, InvalidLogError, LogEntry, OrderLog, fork_index, next_chain
from broadloom.order.model import NO_EPOCH, Epoch
from broadloom.wire import PeerId

A, B = 1, 2


def lineage(*starts: tuple[int, int, int]) -> tuple[EpochStart, ...]:
    return tuple(EpochStart(Epoch(number, sequencer), first) for number, sequencer, first in starts)


def filled(*authors: int, entries_max: int = 1000, bytes_max: int = 1 << 20) -> OrderLog:
    log = OrderLog(entries_max, bytes_max)
    for author in authors:
        log.append(LogEntry(author, log.last_numbers.get(author, 0) + 1, 0, b"", b"data"))
    return log


@pytest.mark.parametrize(
    ("one", "one_end", "other", "other_end", "fork"),
    [
        ((), 0, ((1, A, 1),), 9, 0),
        (((1, A, 1),), 5, ((1, A, 1),), 9, 5),
        (((1, A, 1),), 9, ((1, A, 1), (2, B, 6)), 12, 5),  # entries 6 to 9 were never seen by B
        (((1, A, 1),), 4, ((1, A, 1), (2, B, 6)), 12, 4),
        (((1, A, 1), (2, A, 4)), 9, ((1, A, 1), (3, B, 6)), 12, 3),
        (((1, A, 1), (2, A, 4)), 9, ((1, A, 1), (2, A, 4), (3, B, 8)), 12, 7),
        (((1, A, 1), (2, A, 4)), 9, ((1, B, 1), (2, B, 4)), 9, 0),
        (((2, A, 5),), 9, ((1, A, 1), (2, A, 5)), 7, 7),  # an older part is forgotten
    ],
)
def test_epochs_show_where_two_logs_fork(
    one: tuple[tuple[int, int, int], ...],
    one_end: int,
    other: tuple[tuple[int, int, int], ...],
    other_end: int,
    fork: int,
) -> None:
    assert fork_index(lineage(*one), one_end, lineage(*other), other_end) == fork
    assert fork_index(lineage(*other), other_end, lineage(*one), one_end) == fork


def test_numbers_of_an_author_have_no_gap_and_no_repetition() -> None:
    log = filled(A, B, A)
    assert log.check([LogEntry(A, 3, 0, b"", b""), LogEntry(B, 2, 0, b"", b"")])
    for number in (1, 2, 4):
        with pytest.raises(InvalidLogError, match="is not the next one"):
            log.check([LogEntry(A, number, 0, b"", b"")])


@given(st.lists(st.sampled_from([1, 2, 3]), max_size=30), st.integers(0, 30), st.lists(st.sampled_from([1, 2, 3])))
def test_log_after_truncation_is_as_if_the_rest_had_never_been(first: list[int], end: int, rest: list[int]) -> None:
    end = min(end, len(first))
    log, expected = filled(*first), filled(*first[:end])
    removed = log.truncate(end)
    assert len(removed) == len(first) - end
    for author in rest:
        for each in (log, expected):
            each.append(LogEntry(author, each.last_numbers.get(author, 0) + 1, 0, b"", b"rest"))
    assert (log.end, log.chain, log.size_bytes) == (expected.end, expected.chain, expected.size_bytes)
    assert log.last_numbers == expected.last_numbers
    assert log.last_numbers_at(end) == filled(*first[:end]).last_numbers


def test_chain_covers_every_field() -> None:
    entry = LogEntry(A, 1, 0, b"key", b"data")
    changed = [
        entry._replace(author=B), entry._replace(number=2), entry._replace(original=1), entry._replace(key=b"kez"),
        entry._replace(data=b"date"), entry._replace(key=b"keyd", data=b"ata"),
    ]  # fmt: skip
    chains = {next_chain(NO_CHAIN, each) for each in (entry, *changed)}
    assert len(chains) == 7
    assert next_chain(b"x" * 16, entry) not in chains


def test_log_keeps_its_limits_but_not_beyond_what_was_delivered() -> None:
    log = filled(*[A] * 300, entries_max=100)
    assert not log.trim(0)
    assert log.trim(150)
    assert log.base == 150
    assert log.trim(300)
    assert (log.base, log.end, log.last_numbers) == (200, 300, {A: 300})
    assert log.chain == filled(*[A] * 300).chain
    assert log.chain_at(199) is None
    large = filled(*[A] * 100, bytes_max=100 * 68 // 2)
    assert large.trim(100)
    assert large.size_bytes <= 100 * 68 // 2


def test_key_is_known_as_long_as_its_entry_is_kept() -> None:
    log = OrderLog(16, 1 << 20)
    for number in range(1, 40):
        log.append(LogEntry(A, number, 0, b"%d" % number, b""))
    log.trim(39)
    assert (log.base, b"23" in log.keys, log.keys[b"24"]) == (23, False, 24)
    log.truncate(30)
    assert b"31" not in log.keys


def test_entry_has_the_epoch_that_assigned_it() -> None:
    log = filled(*[A] * 10)
    assert log.epoch_at(1) == NO_EPOCH
    log.set_lineage(lineage((1, A, 1), (2, B, 4), (3, A, 4), (4, B, 9)))
    assert [log.epoch_at(index).number for index in (1, 3, 4, 8, 9, 10)] == [1, 1, 3, 3, 4, 4]


def test_garbage_collector_leaves_entries_alone() -> None:
    log = OrderLog(1000, 1 << 20)
    for number in range(1, 101):
        log.append(LogEntry(PeerId(7), number, 0, b"key", b"data"))
    gc.collect()
    assert not any(gc.is_tracked(each) for each in log._entries)
    assert log.entry(1) == (7, 1, 0, b"key", b"data")
