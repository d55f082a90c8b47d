"""Every way in which a delivery can be wrong is seen at that delivery; and right ones pass."""

import pytest

from broadloom.protocol.events import Message, Missed
from broadloom.testing.checks.delivery_log import AuthorHead, DeliveryLog, latest_heads
from broadloom.testing.workloads import checked_payload

ME, ADA, BOB = 1, 0xADA, 0xB0B
CONNECTED_NS = 1_000


class CheckedLog:
    """A ledger, and what it complained about."""

    def __init__(self) -> None:
        self.violations: list[tuple[int, str]] = []
        self.delivery_log = DeliveryLog(ME, CONNECTED_NS, lambda promise, text: self.violations.append((promise, text)))

    def deliver(self, author: int, *sequences: int, hops: int = 1) -> "CheckedLog":
        for sequence in sequences:
            self.delivery_log.on_delivered(message(author, sequence, hops=hops), now_ns=CONNECTED_NS + 100 * sequence)
        return self


def sent_ns(sequence: int) -> int:
    """Message 5 is the first that was sent after ME was connected."""
    return CONNECTED_NS + 100 * (sequence - 5)


def message(
    author: int, sequence: int, *, hops: int = 1, content: checked_payload.CheckedPayload | None = None
) -> Message:
    content = content or checked_payload.CheckedPayload(
        author, sequence, sent_ns(sequence), sent_ns(sequence - 1) if sequence > 1 else 0
    )
    return Message(author, sequence, checked_payload.encode(content, 100), hops)


def test_in_order_from_two_authors_is_well():
    told = CheckedLog().deliver(ADA, 3, 4, 5).deliver(BOB, 1, 2).deliver(ADA, 6, hops=9)
    assert told.violations == []
    assert told.delivery_log.latency.total == 6
    assert told.delivery_log.hops_max == 9


@pytest.mark.parametrize(
    ("sequences", "complaint"),
    [((3, 4, 4), "#4 twice"), ((3, 4, 3), "#3 twice"), ((3, 5), "#5 before 4"), ((4, 3), "#3 twice")],
)
def test_twice_or_out_of_order(sequences, complaint):
    (broken,) = CheckedLog().deliver(ADA, *sequences).violations
    assert broken[0] == 1
    assert complaint in broken[1]


def test_deliveries_made_twice_are_counted():
    assert CheckedLog().deliver(ADA, 3, 4, 4, 4).delivery_log.delivered_twice == 2


def test_altered():
    told = CheckedLog()
    good = message(ADA, 3)
    told.delivery_log.on_delivered(good._replace(data=good.data[:-1] + b"?"), CONNECTED_NS)
    ((promise, text),) = told.violations
    assert promise == 1
    assert "altered" in text


@pytest.mark.parametrize(
    "said", [checked_payload.CheckedPayload(BOB, 3, 0, 0), checked_payload.CheckedPayload(ADA, 4, 0, 0)]
)
def test_under_another_name_or_number(said):
    told = CheckedLog()
    told.delivery_log.on_delivered(message(ADA, 3, content=said), CONNECTED_NS)
    ((promise, text),) = told.violations
    assert promise == 1
    assert "what was sent as" in text


def test_ones_own_words():
    ((_, text),) = CheckedLog().deliver(ME, 1).violations
    assert "its own" in text


def test_a_clean_start_has_all_since_connect_returned():
    assert CheckedLog().deliver(ADA, 5).violations == []
    ((promise, text),) = CheckedLog().deliver(ADA, 6).violations  # 5 was sent when it was a member already
    assert promise == 3
    assert "#6" in text


def test_a_gap_that_was_told_is_none():
    told = CheckedLog().deliver(ADA, 3)
    told.delivery_log.on_missed(Missed(ADA, 4, 6))
    assert told.deliver(ADA, 7).violations == []
    assert told.delivery_log.missed_count == 3
    assert told.delivery_log.missed_ranges() == [(ADA, 4, 6)]


@pytest.mark.parametrize(
    ("missed", "complaint"),
    [(Missed(ADA, 5, 6), "but had 3"), (Missed(ADA, 3, 4), "but had 3"), (Missed(ADA, 4, 3), "empty range")],
)
def test_told_of_the_wrong_gap(missed, complaint):
    told = CheckedLog().deliver(ADA, 3)
    told.delivery_log.on_missed(missed)
    ((promise, text),) = told.violations
    assert promise == 2
    assert complaint in text


def test_given_after_all_what_was_told_as_missed():
    told = CheckedLog().deliver(ADA, 3)
    told.delivery_log.on_missed(Missed(ADA, 4, 6))
    ((_, text),) = told.deliver(ADA, 5).violations
    assert "after it was told" in text


def test_lacking():
    ledger = CheckedLog().deliver(ADA, 3, 4, 5).delivery_log
    assert ledger.find_missing({ADA: AuthorHead(5, sent_ns(5))}) == []
    (text,) = ledger.find_missing({ADA: AuthorHead(7, sent_ns(7))})
    assert "#6" in text
    (text,) = ledger.find_missing({BOB: AuthorHead(5, sent_ns(5))})
    assert "nothing of" in text


def test_not_owed():
    """What was said before it came, what it said itself, and what was never said."""
    ledger = CheckedLog().delivery_log
    assert (
        ledger.find_missing({ADA: AuthorHead(4, sent_ns(4)), ME: AuthorHead(9, sent_ns(9)), BOB: AuthorHead(0, 0)})
        == []
    )


def test_more_than_was_ever_sent():
    ledger = CheckedLog().deliver(ADA, 3, 4).delivery_log
    assert ledger.find_unsent({ADA: AuthorHead(4, sent_ns(4))}) == []
    (text,) = ledger.find_unsent({ADA: AuthorHead(3, sent_ns(3))})
    assert "#4" in text


def test_what_it_holds_of_a_range():
    told = CheckedLog().deliver(ADA, 3)
    told.delivery_log.on_missed(Missed(ADA, 4, 6))
    told.deliver(ADA, 7)
    assert told.delivery_log.first_held(ADA, 4, 6) is None
    assert told.delivery_log.first_held(ADA, 5, 9) == 7
    assert told.delivery_log.first_held(BOB, 1, 9) is None


def test_the_furthest_counts():
    assert latest_heads([(ADA, 3, 30), (BOB, 1, 10), (ADA, 5, 50), (ADA, 4, 40)]) == {
        ADA: AuthorHead(5, 50),
        BOB: AuthorHead(1, 10),
    }
