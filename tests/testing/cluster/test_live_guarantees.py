"""What the lab compares between peers: what is owed, what is late, what is lost."""

from typing import Any

import pytest

from broadloom.testing.checks import live_guarantees
from broadloom.testing.checks.live_guarantees import LiveGuarantees


def heads(living: dict[int, int], departed: dict[int, int] | None = None) -> list[dict[str, Any]]:
    """What one process says: what its peers have sent, and have heard of those that are gone."""
    return [
        {
            "living": [[peer, sent, 1000 * sent] for peer, sent in living.items()],
            "gone": [[peer, last, 0] for peer, last in (departed or {}).items()],
        }
    ]


def expected(rows: list[list[int]]) -> dict[int, int]:
    return {author: last for author, last, _ in rows}


def reply(missing: int) -> list[dict[str, Any]]:
    return [{"lacking": ["peer 2 has not got 1#5"] * missing, "lacking_count": missing, "pairs": 4}]


def test_what_the_living_said_is_owed() -> None:
    assert expected(LiveGuarantees().expected_exactly(heads({1: 5, 2: 7}))) == {1: 5, 2: 7}


def test_what_was_said_just_now_is_not_owed_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    found = LiveGuarantees()
    assert expected(found.expected_by_now(heads({1: 5}))) == {}
    monkeypatch.setattr(live_guarantees, "DUE_S", 0.0)
    assert expected(found.expected_by_now(heads({1: 6}))) == {1: 6}


def test_of_a_dead_author_is_owed_what_a_survivor_has_and_the_author_told_of() -> None:
    found = LiveGuarantees()
    found.expected_exactly(heads({1: 5, 2: 7}))
    found.on_departed(1, left_gracefully=False)
    assert expected(found.expected_exactly(heads({2: 7}, departed={1: 5}))) == {1: 5, 2: 7}
    # It may have said more in its last moment. Nobody knows when, and so to whom it is owed.
    assert expected(found.expected_exactly(heads({2: 7}, departed={1: 6}))) == {1: 5, 2: 7}
    # What it told of may have reached nobody.
    assert expected(found.expected_exactly(heads({2: 7}, departed={1: 4}))) == {2: 7}


def test_one_that_left_in_peace_owes_all_that_it_said() -> None:
    found = LiveGuarantees()
    found.on_departed(1, left_gracefully=True, sent_count=9, last_sent_ns=123)
    assert expected(found.expected_exactly(heads({2: 7}, departed={1: 3}))) == {1: 9, 2: 7}


def test_late_is_not_lost_until_it_has_been_calm_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    found = LiveGuarantees()
    monkeypatch.setattr(live_guarantees, "LOST_S", 0.0)
    for _ in range(3):
        found.on_compared(reply(2), is_stable=False)
    assert (found.missing_count, found.lost_count) == (2, 0)
    for _ in range(2):
        found.on_compared(reply(2), is_stable=True)
    assert (found.missing_count, found.lost_count) == (2, 2)
    found.on_compared(reply(0), is_stable=True)
    assert (found.missing_count, found.lost_count) == (0, 0)
