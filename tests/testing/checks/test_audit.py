"""What is due to peers, and what was wrongly reported as missed."""

import pytest

from broadloom.testing.checks.audit import STABLE_PERIOD_NS, DepartedPeer, expected_deliveries, find_false_missed
from broadloom.testing.checks.delivery_log import AuthorHead

ADA, BOB = 0xADA, 0xB0B
LONG_AFTER_NS = 10 * STABLE_PERIOD_NS
LEFT = DepartedPeer(left_gracefully=True, at_ns=LONG_AFTER_NS + 5, sent_count=7, last_sent_ns=LONG_AFTER_NS)


def test_messages_of_crashed_author_are_due_as_far_as_a_survivor_has_them() -> None:
    running = {ADA: AuthorHead(9, 90)}
    departed = {BOB: DepartedPeer(left_gracefully=False, at_ns=50)}
    held = {BOB: AuthorHead(4, 40)}
    assert expected_deliveries(running, departed, held, [50]) == running | held
    assert expected_deliveries(running, departed, {}, [50]) == running


def test_all_messages_are_due_when_author_left_a_stable_fabric() -> None:
    due = {BOB: AuthorHead(7, LONG_AFTER_NS)}
    assert expected_deliveries({}, {BOB: LEFT}, {BOB: AuthorHead(4, 40)}, []) == due
    assert expected_deliveries({}, {BOB: LEFT}, {}, [1]) == due


@pytest.mark.parametrize("kill_ns", [LONG_AFTER_NS - STABLE_PERIOD_NS + 1, LONG_AFTER_NS, LONG_AFTER_NS + 4])
def test_fewer_messages_are_due_when_author_left_around_a_kill(kill_ns: int) -> None:
    held = {BOB: AuthorHead(4, 40)}
    assert expected_deliveries({}, {BOB: LEFT}, held, [kill_ns]) == held


# -- messages reported as missed


def test_missed_message_that_no_peer_has_is_valid() -> None:
    assert find_false_missed([(3, ADA, 4, 6)], {}, {ADA: AuthorHead(9, 90)}) == []


def test_missed_message_that_a_peer_has_is_reported() -> None:
    (text,) = find_false_missed([(3, ADA, 4, 6)], {(ADA, 4, 6): 5}, {ADA: AuthorHead(9, 90)})
    assert "peer 3" in text
    assert "#5" in text


def test_missed_message_that_was_never_sent_is_reported() -> None:
    (text,) = find_false_missed([(3, ADA, 4, 10)], {}, {ADA: AuthorHead(9, 90)})
    assert "never sent" in text
