"""What the lab compares between peers: what is owed, what is late, what is lost."""

from typing import Any

import pytest

from weft.lab import promises
from weft.lab.promises import Promises


def heads(living: dict[int, int], gone: dict[int, int] | None = None) -> list[dict[str, Any]]:
    """What one process says: what its peers have sent, and have heard of those that are gone."""
    return [
        {
            "living": [[peer, sent, 1000 * sent] for peer, sent in living.items()],
            "gone": [[peer, last, 0] for peer, last in (gone or {}).items()],
        }
    ]


def owed(roll: list[list[int]]) -> dict[int, int]:
    return {author: last for author, last, _ in roll}


def answer(lacking: int) -> list[dict[str, Any]]:
    return [{"lacking": ["peer 2 has not got 1#5"] * lacking, "lacking_count": lacking, "pairs": 4}]


def test_what_the_living_said_is_owed() -> None:
    assert owed(Promises().exact_roll(heads({1: 5, 2: 7}))) == {1: 5, 2: 7}


def test_what_was_said_just_now_is_not_owed_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Promises()
    assert owed(found.roll(heads({1: 5}))) == {}
    monkeypatch.setattr(promises, "DUE_S", 0.0)
    assert owed(found.roll(heads({1: 6}))) == {1: 6}


def test_of_a_dead_author_is_owed_what_a_survivor_has_and_the_author_told_of() -> None:
    found = Promises()
    found.exact_roll(heads({1: 5, 2: 7}))
    found.went(1, in_good_order=False)
    assert owed(found.exact_roll(heads({2: 7}, gone={1: 5}))) == {1: 5, 2: 7}
    # It may have said more in its last moment. Nobody knows when, and so to whom it is owed.
    assert owed(found.exact_roll(heads({2: 7}, gone={1: 6}))) == {1: 5, 2: 7}
    # What it told of may have reached nobody.
    assert owed(found.exact_roll(heads({2: 7}, gone={1: 4}))) == {2: 7}


def test_one_that_left_in_peace_owes_all_that_it_said() -> None:
    found = Promises()
    found.went(1, in_good_order=True, sent=9, sent_ns=123)
    assert owed(found.exact_roll(heads({2: 7}, gone={1: 3}))) == {1: 9, 2: 7}


def test_late_is_not_lost_until_it_has_been_calm_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Promises()
    monkeypatch.setattr(promises, "LOST_S", 0.0)
    for _ in range(3):
        found.checked(answer(2), is_calm=False)
    assert (found.lacking, found.lost) == (2, 0)
    for _ in range(2):
        found.checked(answer(2), is_calm=True)
    assert (found.lacking, found.lost) == (2, 2)
    found.checked(answer(0), is_calm=True)
    assert (found.lacking, found.lost) == (0, 0)
