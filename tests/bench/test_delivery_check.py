"""What a process counts of what it receives."""

from bench.delivery_check import CAPACITY_MIN, HEADER, WARMUP_SEQUENCE, DeliveryCheck


def make_delivery_check(**options):
    emitted = []
    delivery_check = DeliveryCheck(7, timed=options.pop("timed", False), emit=lambda *words: emitted.append(words[0]))
    return delivery_check, emitted


def payload(author, sequence):
    return HEADER.pack(author, sequence, 0) + b"padding"


def test_every_message_counts_once_and_own_ones_never():
    tally, said = make_delivery_check()
    tally.expect(3)
    for author, sequence in ((0, 0), (0, 0), (7, 0), (1, 0), (0, 1)):
        tally.deliver(payload(author, sequence))
    assert (tally.received, tally.duplicates) == (3, 1)
    assert said == ["first", "done"]


def test_batches_count_like_single_messages():
    tally, said = make_delivery_check(timed=True)
    tally.expect(3)
    tally.deliver_many([payload(0, 0), payload(0, 0), payload(7, 0), payload(1, 0)])
    tally.deliver_many([payload(0, 1)])
    assert (tally.received, tally.duplicates, len(tally.latencies_ns)) == (3, 1, 3)
    assert said == ["first", "done"]


def test_warming_is_no_message():
    tally, said = make_delivery_check()
    tally.deliver(payload(3, WARMUP_SEQUENCE))
    tally.deliver_many([payload(4, WARMUP_SEQUENCE)])
    assert tally.warmed_authors == {3, 4}
    assert (tally.received, said) == (0, [])


def test_a_second_measurement_goes_on_from_the_first():
    tally, said = make_delivery_check()
    tally.expect(1)
    tally.deliver(payload(0, 0))
    tally.expect(1)
    tally.deliver(payload(0, 1))
    assert said == ["first", "done", "done"]


def test_gaps_lie_between_the_first_and_the_last():
    tally, _ = make_delivery_check()
    for sequence in (5, 6, 9, CAPACITY_MIN * 3):
        tally.deliver(payload(0, sequence))
    assert tally.gaps() == CAPACITY_MIN * 3 - 5 + 1 - 4
