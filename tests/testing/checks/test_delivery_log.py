"""Every kind of wrong delivery is detected when it happens, and correct ones pass."""

from dataclasses import replace

import pytest

from broadloom.protocol.events import Message, Missed
from broadloom.testing.checks.audit import latest_heads
from broadloom.testing.checks.delivery_log import AuthorHead, DeliveryLog
from broadloom.testing.workloads import checked_payload

ME, ADA, BOB = 1, 0xADA, 0xB0B
CONNECTED_NS = 1_000


class CheckedLog:
    """A delivery log and its violations."""

    def __init__(self, *, checks_payloads: bool = True) -> None:
        self.violations: list[tuple[int, str]] = []
        self.delivery_log = DeliveryLog(
            ME, CONNECTED_NS, lambda *violation: self.violations.append(violation), checks_payloads=checks_payloads
        )

    def deliver(self, author: int, *sequences: int, hops: int = 1) -> "CheckedLog":
        for sequence in sequences:
            self.delivery_log.on_delivered(message(author, sequence, hops=hops), now_ns=CONNECTED_NS + 100 * sequence)
        return self


def sent_ns(sequence: int) -> int:
    """Message 5 is the first one sent after ME was connected."""
    return CONNECTED_NS + 100 * (sequence - 5)


def message(
    author: int, sequence: int, *, hops: int = 1, content: checked_payload.CheckedPayload | None = None
) -> Message:
    content = content or checked_payload.CheckedPayload(
        author, sequence, sent_ns(sequence), sent_ns(sequence - 1) if sequence > 1 else 0
    )
    return Message(author, sequence, checked_payload.encode(content, 100), hops)


def test_in_order_deliveries_from_two_authors_are_valid():
    log = CheckedLog().deliver(ADA, 3, 4, 5).deliver(BOB, 1, 2).deliver(ADA, 6, hops=9)
    assert log.violations == []
    assert log.delivery_log.latency.total == 6
    assert log.delivery_log.hops_max == 9


@pytest.mark.parametrize(
    ("sequences", "complaint"),
    [((3, 4, 4), "#4 twice"), ((3, 4, 3), "#3 twice"), ((3, 5), "#5 before 4"), ((4, 3), "#3 twice")],
)
def test_duplicate_or_reordered_delivery_is_a_violation(sequences, complaint):
    (violation,) = CheckedLog().deliver(ADA, *sequences).violations
    assert violation[0] == 1
    assert complaint in violation[1]


def test_duplicate_deliveries_are_counted():
    assert CheckedLog().deliver(ADA, 3, 4, 4, 4).delivery_log.delivered_twice == 2


def test_corrupted_payload_is_a_violation():
    log = CheckedLog()
    good = message(ADA, 3)
    log.delivery_log.on_delivered(replace(good, data=good.data[:-1] + b"?"), CONNECTED_NS)
    ((guarantee, text),) = log.violations
    assert guarantee == 1
    assert "corrupted" in text


@pytest.mark.parametrize(
    "content", [checked_payload.CheckedPayload(BOB, 3, 0, 0), checked_payload.CheckedPayload(ADA, 4, 0, 0)]
)
def test_payload_of_another_author_or_sequence_is_a_violation(content):
    log = CheckedLog()
    log.delivery_log.on_delivered(message(ADA, 3, content=content), CONNECTED_NS)
    ((guarantee, text),) = log.violations
    assert guarantee == 1
    assert "what was sent as" in text


def test_own_message_is_a_violation():
    ((_, text),) = CheckedLog().deliver(ME, 1).violations
    assert "its own" in text


def test_first_delivery_after_connect_leaves_no_gap():
    assert CheckedLog().deliver(ADA, 5).violations == []
    ((guarantee, text),) = CheckedLog().deliver(ADA, 6).violations  # 5 was sent when ME was already a member
    assert guarantee == 3
    assert "#6" in text


def test_gap_reported_as_missed_is_valid():
    log = CheckedLog().deliver(ADA, 3)
    log.delivery_log.on_missed(Missed(ADA, 4, 6))
    assert log.deliver(ADA, 7).violations == []
    assert log.delivery_log.missed_count == 3
    assert log.delivery_log.missed_ranges() == [(ADA, 4, 6)]


@pytest.mark.parametrize(
    ("missed", "complaint"),
    [
        (Missed(ADA, 5, 6), "but had received up to 3"),
        (Missed(ADA, 3, 4), "but had received up to 3"),
        (Missed(ADA, 4, 3), "empty gap"),
    ],
)
def test_missed_event_with_wrong_range_is_a_violation(missed, complaint):
    log = CheckedLog().deliver(ADA, 3)
    log.delivery_log.on_missed(missed)
    ((guarantee, text),) = log.violations
    assert guarantee == 2
    assert complaint in text


def test_delivery_of_missed_message_is_a_violation():
    log = CheckedLog().deliver(ADA, 3)
    log.delivery_log.on_missed(Missed(ADA, 4, 6))
    ((_, text),) = log.deliver(ADA, 5).violations
    assert "reported as missed" in text


def test_find_missing_reports_undelivered_messages():
    log = CheckedLog().deliver(ADA, 3, 4, 5).delivery_log
    assert log.find_missing({ADA: AuthorHead(5, sent_ns(5))}) == []
    (text,) = log.find_missing({ADA: AuthorHead(7, sent_ns(7))})
    assert "#6" in text
    (text,) = log.find_missing({BOB: AuthorHead(5, sent_ns(5))})
    assert "nothing from" in text


def test_find_missing_ignores_messages_that_are_not_due():
    """Messages sent before the peer joined, its own, and those of an author that sent nothing."""
    log = CheckedLog().delivery_log
    assert (
        log.find_missing({ADA: AuthorHead(4, sent_ns(4)), ME: AuthorHead(9, sent_ns(9)), BOB: AuthorHead(0, 0)}) == []
    )


def test_find_unsent_reports_messages_beyond_the_last_sent():
    log = CheckedLog().deliver(ADA, 3, 4).delivery_log
    assert log.find_unsent({ADA: AuthorHead(4, sent_ns(4))}) == []
    (text,) = log.find_unsent({ADA: AuthorHead(3, sent_ns(3))})
    assert "#4" in text


def test_first_held_skips_missed_messages():
    log = CheckedLog().deliver(ADA, 3)
    log.delivery_log.on_missed(Missed(ADA, 4, 6))
    log.deliver(ADA, 7)
    assert log.delivery_log.first_held(ADA, 4, 6) is None
    assert log.delivery_log.first_held(ADA, 5, 9) == 7
    assert log.delivery_log.first_held(BOB, 1, 9) is None


def test_latest_heads_keep_the_highest_sequence():
    assert latest_heads([(ADA, 3, 30), (BOB, 1, 10), (ADA, 5, 50), (ADA, 4, 40)]) == {
        ADA: AuthorHead(5, 50),
        BOB: AuthorHead(1, 10),
    }


def test_unchecked_log_accepts_any_payload_and_detects_gaps():
    log = CheckedLog(checks_payloads=False)
    for sequence in (3, 4, 6):
        log.delivery_log.on_delivered(Message(ADA, sequence, b"anything", 2), CONNECTED_NS)
    ((guarantee, text),) = log.violations
    assert guarantee == 1
    assert "#6 before 5" in text
    assert log.delivery_log.hops_max == 2
