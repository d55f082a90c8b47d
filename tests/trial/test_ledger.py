"""Every way in which a delivery can be wrong is seen at that delivery; and right ones pass."""

import pytest

from weft.fabric.events import Message, Missed
from weft.trial import payload
from weft.trial.ledger import Head, Ledger, furthest

ME, ADA, BOB = 1, 0xADA, 0xB0B
CONNECTED_NS = 1_000


class Told:
    """A ledger, and what it complained about."""

    def __init__(self) -> None:
        self.broken: list[tuple[int, str]] = []
        self.ledger = Ledger(ME, CONNECTED_NS, lambda promise, text: self.broken.append((promise, text)))

    def give(self, author: int, *sequences: int, hops: int = 1) -> "Told":
        for sequence in sequences:
            self.ledger.delivered(message(author, sequence, hops=hops), now_ns=CONNECTED_NS + 100 * sequence)
        return self


def sent_ns(sequence: int) -> int:
    """Message 5 is the first that was sent after ME was connected."""
    return CONNECTED_NS + 100 * (sequence - 5)


def message(author: int, sequence: int, *, hops: int = 1, said: payload.Said | None = None) -> Message:
    said = said or payload.Said(author, sequence, sent_ns(sequence), sent_ns(sequence - 1) if sequence > 1 else 0)
    return Message(author, sequence, payload.make(said, 100), hops)


def test_in_order_from_two_authors_is_well():
    told = Told().give(ADA, 3, 4, 5).give(BOB, 1, 2).give(ADA, 6, hops=9)
    assert told.broken == []
    assert told.ledger.latency.total == 6
    assert told.ledger.hops_max == 9


@pytest.mark.parametrize(
    ("sequences", "complaint"),
    [((3, 4, 4), "#4 twice"), ((3, 4, 3), "#3 twice"), ((3, 5), "#5 before 4"), ((4, 3), "#3 twice")],
)
def test_twice_or_out_of_order(sequences, complaint):
    (broken,) = Told().give(ADA, *sequences).broken
    assert broken[0] == 1
    assert complaint in broken[1]


def test_deliveries_made_twice_are_counted():
    assert Told().give(ADA, 3, 4, 4, 4).ledger.twice == 2


def test_altered():
    told = Told()
    good = message(ADA, 3)
    told.ledger.delivered(good._replace(data=good.data[:-1] + b"?"), CONNECTED_NS)
    ((promise, text),) = told.broken
    assert promise == 1
    assert "altered" in text


@pytest.mark.parametrize("said", [payload.Said(BOB, 3, 0, 0), payload.Said(ADA, 4, 0, 0)])
def test_under_another_name_or_number(said):
    told = Told()
    told.ledger.delivered(message(ADA, 3, said=said), CONNECTED_NS)
    ((promise, text),) = told.broken
    assert promise == 1
    assert "what was sent as" in text


def test_ones_own_words():
    ((_, text),) = Told().give(ME, 1).broken
    assert "its own" in text


def test_a_clean_start_has_all_since_connect_returned():
    assert Told().give(ADA, 5).broken == []
    ((promise, text),) = Told().give(ADA, 6).broken  # 5 was sent when it was a member already
    assert promise == 3
    assert "#6" in text


def test_a_gap_that_was_told_is_none():
    told = Told().give(ADA, 3)
    told.ledger.missed(Missed(ADA, 4, 6))
    assert told.give(ADA, 7).broken == []
    assert told.ledger.missed_count == 3
    assert told.ledger.told() == [(ADA, 4, 6)]


@pytest.mark.parametrize(
    ("missed", "complaint"),
    [(Missed(ADA, 5, 6), "but had 3"), (Missed(ADA, 3, 4), "but had 3"), (Missed(ADA, 4, 3), "empty range")],
)
def test_told_of_the_wrong_gap(missed, complaint):
    told = Told().give(ADA, 3)
    told.ledger.missed(missed)
    ((promise, text),) = told.broken
    assert promise == 2
    assert complaint in text


def test_given_after_all_what_was_told_as_missed():
    told = Told().give(ADA, 3)
    told.ledger.missed(Missed(ADA, 4, 6))
    ((_, text),) = told.give(ADA, 5).broken
    assert "after it was told" in text


def test_lacking():
    ledger = Told().give(ADA, 3, 4, 5).ledger
    assert ledger.lacking({ADA: Head(5, sent_ns(5))}) == []
    (text,) = ledger.lacking({ADA: Head(7, sent_ns(7))})
    assert "#6" in text
    (text,) = ledger.lacking({BOB: Head(5, sent_ns(5))})
    assert "nothing of" in text


def test_not_owed():
    """What was said before it came, what it said itself, and what was never said."""
    ledger = Told().ledger
    assert ledger.lacking({ADA: Head(4, sent_ns(4)), ME: Head(9, sent_ns(9)), BOB: Head(0, 0)}) == []


def test_more_than_was_ever_sent():
    ledger = Told().give(ADA, 3, 4).ledger
    assert ledger.beyond({ADA: Head(4, sent_ns(4))}) == []
    (text,) = ledger.beyond({ADA: Head(3, sent_ns(3))})
    assert "#4" in text


def test_what_it_holds_of_a_range():
    told = Told().give(ADA, 3)
    told.ledger.missed(Missed(ADA, 4, 6))
    told.give(ADA, 7)
    assert told.ledger.has_any(ADA, 4, 6) is None
    assert told.ledger.has_any(ADA, 5, 9) == 7
    assert told.ledger.has_any(BOB, 1, 9) is None


def test_the_furthest_counts():
    assert furthest([(ADA, 3, 30), (BOB, 1, 10), (ADA, 5, 50), (ADA, 4, 40)]) == {ADA: Head(5, 50), BOB: Head(1, 10)}
