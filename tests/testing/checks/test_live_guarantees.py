"""The comparison between peers of a cluster: what is due, late or lost."""

from typing import Any

import pytest

from broadloom.testing.checks import live_guarantees
from broadloom.testing.checks.delivery_log import AuthorHead
from broadloom.testing.checks.live_guarantees import LiveGuarantees


def heads(running: dict[int, int], departed: dict[int, int] | None = None) -> list[dict[str, Any]]:
    """The reply of one worker: what its peers have sent, and have of departed authors."""
    return [
        {
            "running": [[peer, sent, 1000 * sent] for peer, sent in running.items()],
            "departed": [[peer, last, 0] for peer, last in (departed or {}).items()],
        }
    ]


def expected(heads: dict[int, AuthorHead]) -> dict[int, int]:
    return {author: head.last_sequence for author, head in heads.items()}


def reply(missing: int) -> list[dict[str, Any]]:
    return [{"missing": ["peer 2 is missing 1#5"] * missing, "missing_count": missing, "pairs": 4}]


def test_messages_of_running_authors_are_due() -> None:
    assert expected(LiveGuarantees().expected(heads({1: 5, 2: 7}))) == {1: 5, 2: 7}


def test_recent_messages_are_not_due_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = LiveGuarantees()
    assert expected(checks.expected_by_now(heads({1: 5}))) == {}
    monkeypatch.setattr(live_guarantees, "DUE_S", 0.0)
    assert expected(checks.expected_by_now(heads({1: 6}))) == {1: 6}


def test_messages_of_crashed_author_are_due_if_any_survivor_has_them() -> None:
    checks = LiveGuarantees()
    checks.expected(heads({1: 5, 2: 7}))
    checks.on_departed(1, left_gracefully=False)
    assert expected(checks.expected(heads({2: 7}, departed={1: 5}))) == {1: 5, 2: 7}
    # Of messages after its last report it is unknown when they were sent, and so to whom they are due.
    assert expected(checks.expected(heads({2: 7}, departed={1: 6}))) == {1: 5, 2: 7}
    # What it reported may have reached no peer.
    assert expected(checks.expected(heads({2: 7}, departed={1: 4}))) == {2: 7}


def test_all_messages_are_due_when_author_left_gracefully() -> None:
    checks = LiveGuarantees()
    checks.on_departed(1, left_gracefully=True, sent_count=9, last_sent_ns=123)
    assert expected(checks.expected(heads({2: 7}, departed={1: 3}))) == {1: 9, 2: 7}


def test_late_messages_are_lost_only_after_a_stable_period(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = LiveGuarantees()
    monkeypatch.setattr(live_guarantees, "LOST_S", 0.0)
    for _ in range(3):
        checks.on_compared(reply(2), is_stable=False)
    assert (checks.missing_count, checks.lost_count) == (2, 0)
    for _ in range(2):
        checks.on_compared(reply(2), is_stable=True)
    assert (checks.missing_count, checks.lost_count) == (2, 2)
    checks.on_compared(reply(0), is_stable=True)
    assert (checks.missing_count, checks.lost_count) == (0, 0)
