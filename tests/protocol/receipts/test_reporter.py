"""What a member reports about its deliveries, and which reports of others it passes on."""

from broadloom.protocol import Peer
from broadloom.protocol.events import Batch, Missed
from broadloom.protocol.receipts.reporter import AUTHORS_MIN
from broadloom.wire.fields import MISSED_ENDS_MAX
from broadloom.wire.receipt_messages import DeliveryReports
from tests.protocol.fake_runtime import ME, FakeConnection, FakeRuntime
from tests.protocol.receipts.receipts_kit import (
    AUTHOR,
    GATHERED_S,
    decoded_reports,
    reports_sent,
    signed_report,
    with_receipt,
)
from tests.protocol.roster.roster_kit import linked, member, record, records

TOWARD_AUTHOR, BEHIND = 2, 3


def relay(runtime: FakeRuntime) -> tuple[Peer, FakeConnection, FakeConnection]:
    """A peer with a neighbor toward the author, and one behind it."""
    peer = member(runtime)
    toward_author, behind = linked(runtime, peer, TOWARD_AUTHOR, BEHIND)
    return peer, toward_author, behind


def confirmed_by_us(connection: FakeConnection, *sequences: int) -> list[int]:
    """Which of these messages our newest report confirms."""
    newest = decoded_reports(connection, ME)[-1]
    return [each for each in sequences if newest.covers(each)]


def discard(peer: Peer, runtime: FakeRuntime, *sequences: int) -> None:
    """The application discards these messages when they arrive."""
    deliver = runtime.deliver

    def deliver_or_discard(batch: Batch) -> None:
        for sequence in sequences:
            if batch.first_sequence <= sequence <= batch.last_sequence:
                peer.reporter.on_undelivered(batch.author, sequence)
        deliver(batch)

    runtime.deliver = deliver_or_discard  # type: ignore[method-assign]


def test_message_that_is_discarded_on_arrival_is_not_confirmed() -> None:
    runtime = FakeRuntime()
    peer, toward_author, _ = relay(runtime)
    discard(peer, runtime, 1, 3)
    for sequence in range(1, 5):
        toward_author.remote_sends(with_receipt(sequence))
        runtime.advance(GATHERED_S)
        expected = [each for each in (2, 4) if each <= sequence]
        assert confirmed_by_us(toward_author, 1, 2, 3, 4) == expected


def test_message_that_another_local_peer_got_first_and_discarded_is_not_confirmed() -> None:
    runtime = FakeRuntime()
    peer, toward_author, _ = relay(runtime)
    peer.reporter.on_undelivered(AUTHOR, 2)
    toward_author.remote_sends(with_receipt(1), with_receipt(2), with_receipt(3))
    runtime.advance(GATHERED_S)
    assert confirmed_by_us(toward_author, 1, 2, 3) == [1, 3]


def test_more_discarded_messages_than_fit_into_a_report_are_not_confirmed() -> None:
    runtime = FakeRuntime()
    peer, toward_author, _ = relay(runtime)
    ahead = range(2, 2 + MISSED_ENDS_MAX // 2)
    for sequence in ahead:
        peer.reporter.on_undelivered(AUTHOR, sequence)
    toward_author.remote_sends(with_receipt(1))
    peer.reporter.on_missed(Missed(AUTHOR, 1, 1))
    for sequence in range(2, ahead[-1] + 2):
        toward_author.remote_sends(with_receipt(sequence))
    runtime.advance(GATHERED_S)
    assert confirmed_by_us(toward_author, *ahead, ahead[-1] + 1) == [ahead[-1] + 1]


def test_discarded_messages_without_receipt_cause_no_report() -> None:
    runtime = FakeRuntime()
    peer, toward_author, behind = relay(runtime)
    for sequence in range(1, 2 * MISSED_ENDS_MAX):
        peer.reporter.on_undelivered(AUTHOR, sequence)
    toward_author.remote_closes()
    runtime.advance(1)
    assert reports_sent(behind) == []


def test_messages_of_more_authors_than_the_minimum_at_once_are_all_confirmed() -> None:
    runtime = FakeRuntime()
    peer, toward_author, behind = relay(runtime)
    authors = range(1001, 1001 + 2 * AUTHORS_MIN)
    for author in authors:
        toward_author.remote_sends(records(record(author, TOWARD_AUTHOR)))
    for author in authors:
        toward_author.remote_sends(with_receipt(1, author))
    for author in authors:
        behind.remote_sends(DeliveryReports((signed_report(BEHIND, 1, author=author),)))
    runtime.advance(GATHERED_S)
    assert peer.roster.size >= len(authors)
    for reporter in (ME, BEHIND):
        assert [each.author for each in decoded_reports(toward_author, reporter)] == list(authors)


def test_author_is_not_forgotten_before_its_report_is_sent() -> None:
    runtime = FakeRuntime()
    _, toward_author, _ = relay(runtime)
    authors = range(1001, 1001 + AUTHORS_MIN + 10)
    for author in authors:
        toward_author.remote_sends(with_receipt(1, author))
    assert [each.author for each in decoded_reports(toward_author, ME)] == list(authors[:10])
    runtime.advance(GATHERED_S)
    assert [each.author for each in decoded_reports(toward_author, ME)] == list(authors)


def test_late_report_is_passed_on_as_long_as_the_message_is_retained() -> None:
    runtime = FakeRuntime()
    peer, toward_author, behind = relay(runtime)
    toward_author.remote_sends(with_receipt(1))
    runtime.advance(peer.settings.retention_s - 1)
    behind.remote_sends(DeliveryReports((signed_report(BEHIND, 1),)))
    runtime.advance(GATHERED_S)
    assert len(decoded_reports(toward_author, BEHIND)) == 1
    runtime.advance(2)
    behind.remote_sends(DeliveryReports((signed_report(7, 1),)))
    runtime.advance(GATHERED_S)
    assert decoded_reports(toward_author, 7) == []
