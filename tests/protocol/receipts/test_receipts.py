"""The receipts that a peer waits for as an author."""

from broadloom.protocol.receipts.receipts import Receipt
from broadloom.wire.payload_kind import WANTS_RECEIPT
from broadloom.wire.receipt_messages import DeliveryReport, DeliveryReports
from tests.protocol.fake_runtime import ME, FakeRuntime
from tests.protocol.receipts.receipts_kit import AUTHOR, signed_report
from tests.protocol.roster.roster_kit import linked, member

LONG_S = 1000.0


def test_members_at_the_first_fragment_count_for_a_message_in_fragments() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    staying, dying = linked(runtime, peer, 2, 3)
    receipts: list[Receipt] = []
    peer.broadcast(b"first fragment")
    waiting = peer.receipts.prepare(None)
    dying.remote_closes()
    linked(runtime, peer, 4)
    runtime.advance(20)
    assert peer.roster.peer_ids() == [2, 4, ME]
    sequence = peer.broadcast(b"last fragment", kind=WANTS_RECEIPT)
    peer.receipts.open(waiting, sequence, LONG_S, receipts.append)
    staying.remote_sends(DeliveryReports((signed_report(2, sequence, first=sequence, author=ME),)))
    (receipt,) = receipts
    assert (receipt.confirmed, receipt.gone, receipt.missing) == (frozenset({2}), frozenset({3}), frozenset())


def test_report_confirms_a_message_whatever_became_of_those_before_it() -> None:
    report = DeliveryReport(2, AUTHOR, 3, 9, (4, 5, 7, 7))
    assert [each for each in range(1, 12) if report.covers(each)] == [3, 6, 8, 9]


def test_abort_ends_all_receipts() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    linked(runtime, peer, 2)
    receipts: list[Receipt] = []
    peer.receipts.open(peer.receipts.prepare(None), peer.broadcast(b"hello"), LONG_S, receipts.append)
    peer.abort()
    assert [receipt.missing for receipt in receipts] == [{2}]
    assert peer.receipts.open_count == 0
