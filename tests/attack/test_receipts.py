"""Forged delivery reports: no member can suppress the confirmations of another. On a manual clock."""

import pytest

from broadloom.protocol import Peer
from broadloom.protocol.receipts.receipts import Receipt
from broadloom.protocol.receipts.reporter import UNLISTED_REPORTS_MAX
from broadloom.wire.fields import REPORTS_MAX
from broadloom.wire.receipt_messages import DeliveryReports
from broadloom.wire.types import SignedReport
from tests.protocol.fake_runtime import ME, FakeConnection, FakeRuntime
from tests.protocol.receipts.receipts_kit import (
    GATHERED_S,
    count_verifications,
    reports_sent,
    signed_report,
    with_receipt,
)
from tests.protocol.roster.roster_kit import linked, member, record, records

TOWARD_AUTHOR, LIAR, HONEST, VICTIM = 2, 3, 4, 7
LAST_MAX = (1 << 64) - 1
TRUE = signed_report(VICTIM, 2)
FORGERIES = {
    "beyond all messages": signed_report(VICTIM, LAST_MAX, by=LIAR),
    "beyond the last message": signed_report(VICTIM, 3, by=LIAR),
    "as far as the true one": signed_report(VICTIM, 2, first=2, by=LIAR),
    "the true one with another signature": TRUE._replace(signature=bytes(32)),
    "of another member": signed_report(LIAR, 2)._replace(report=TRUE.report),
}


def relay(runtime: FakeRuntime, *, plain: bool = False) -> tuple[Peer, FakeConnection, FakeConnection, FakeConnection]:
    """A peer between an author and the neighbors of the victim; it has two messages with a receipt."""
    peer = member(runtime, plain=plain)
    toward_author, liar, honest = linked(runtime, peer, TOWARD_AUTHOR, LIAR, HONEST, plain=plain)
    honest.remote_sends(records(record(VICTIM, LIAR, HONEST), plain=plain))
    for connection, neighbor in ((liar, LIAR), (honest, HONEST)):
        connection.remote_sends(records(record(neighbor, ME, VICTIM, incarnation=2), plain=plain))
    runtime.advance(0.5)
    assert VICTIM in peer.roster.peer_ids()
    toward_author.remote_sends(with_receipt(1), with_receipt(2))
    return peer, toward_author, liar, honest


@pytest.mark.parametrize("pause_s", [0.0, GATHERED_S])
@pytest.mark.parametrize("forged", FORGERIES.values(), ids=FORGERIES)
def test_forged_report_before_the_true_one_does_not_suppress_it(forged: SignedReport, pause_s: float) -> None:
    runtime = FakeRuntime()
    _, toward_author, liar, honest = relay(runtime)
    liar.remote_sends(DeliveryReports((forged,)))
    runtime.advance(pause_s)
    honest.remote_sends(DeliveryReports((TRUE,)))
    runtime.advance(GATHERED_S)
    assert TRUE in reports_sent(toward_author)
    assert not liar.closed, "relays do not verify reports, so the neighbor is not to blame"


@pytest.mark.parametrize("pause_s", [0.0, GATHERED_S])
@pytest.mark.parametrize("forged", FORGERIES.values(), ids=FORGERIES)
def test_forged_report_after_the_true_one_does_not_suppress_it(forged: SignedReport, pause_s: float) -> None:
    runtime = FakeRuntime()
    _, toward_author, liar, honest = relay(runtime)
    honest.remote_sends(DeliveryReports((TRUE,)))
    runtime.advance(pause_s)
    liar.remote_sends(DeliveryReports((forged,)))
    runtime.advance(GATHERED_S)
    assert TRUE in reports_sent(toward_author)


def test_forged_newer_report_does_not_displace_an_unsent_report() -> None:
    runtime = FakeRuntime()
    _, toward_author, liar, honest = relay(runtime)
    honest.remote_sends(DeliveryReports((TRUE,)))
    toward_author.remote_sends(with_receipt(3))
    liar.remote_sends(DeliveryReports((signed_report(VICTIM, 3, by=LIAR),)))
    newer = signed_report(VICTIM, 3)
    honest.remote_sends(DeliveryReports((newer,)))
    runtime.advance(GATHERED_S)
    assert {TRUE, newer} <= set(reports_sent(toward_author))


def test_invented_members_do_not_keep_out_the_reports_of_others() -> None:
    runtime = FakeRuntime()
    peer, toward_author, liar, honest = relay(runtime)
    invented = [signed_report(each, 2) for each in range(10_000, 10_000 + peer.roster.size + 2 * UNLISTED_REPORTS_MAX)]
    for start in range(0, len(invented), REPORTS_MAX):
        liar.remote_sends(DeliveryReports(tuple(invented[start : start + REPORTS_MAX])))
    honest.remote_sends(DeliveryReports((TRUE,)))
    runtime.advance(GATHERED_S)
    assert TRUE in reports_sent(toward_author)
    assert len(set(reports_sent(toward_author)) & set(invented)) == UNLISTED_REPORTS_MAX


def test_report_from_beyond_what_the_relay_knows_is_passed_on_if_it_is_genuine() -> None:
    """Its member may have got the last messages over another path."""
    runtime = FakeRuntime()
    _, toward_author, _, honest = relay(runtime)
    ahead = signed_report(VICTIM, 5)
    honest.remote_sends(DeliveryReports((ahead,)))
    runtime.advance(GATHERED_S)
    assert ahead in reports_sent(toward_author)


def test_relay_verifies_no_report_without_a_conflict() -> None:
    runtime = FakeRuntime()
    peer, toward_author, liar, honest = relay(runtime)
    verified = count_verifications(peer)
    for sequence in range(2, 12):
        for connection in (liar, honest):  # a link was down, so the report comes over both
            connection.remote_sends(DeliveryReports((signed_report(VICTIM, sequence),)))
        runtime.advance(GATHERED_S)
        toward_author.remote_sends(with_receipt(sequence + 1))
    assert len(set(reports_sent(toward_author))) == 20, "10 of the victim, 10 of our own"
    assert verified == []


def test_members_that_the_roster_has_learned_of_make_room_for_others() -> None:
    runtime = FakeRuntime()
    _, toward_author, liar, honest = relay(runtime)
    newcomers = range(10_000, 10_000 + UNLISTED_REPORTS_MAX)
    honest.remote_sends(DeliveryReports(tuple(signed_report(each, 2) for each in newcomers)))
    honest.remote_sends(records(record(HONEST, ME, VICTIM, newcomers[0], incarnation=3), record(newcomers[0], HONEST)))
    runtime.advance(0.5)
    late = signed_report(20_000, 2), signed_report(20_001, 2)
    liar.remote_sends(DeliveryReports(late))
    runtime.advance(GATHERED_S)
    assert [each for each in late if each in reports_sent(toward_author)] == [late[0]]


def test_forged_report_confirms_nothing() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    liar, honest = linked(runtime, peer, LIAR, HONEST)
    receipts: list[Receipt] = []
    peer.receipts.open(peer.receipts.prepare(None), peer.broadcast(b"hello"), 1.0, receipts.append)
    liar.remote_sends(DeliveryReports((signed_report(HONEST, 1, author=ME, by=LIAR),)))
    liar.remote_sends(DeliveryReports((signed_report(LIAR, 1, author=ME),)))
    runtime.advance(2)
    assert [(receipt.confirmed, receipt.missing) for receipt in receipts] == [(frozenset({LIAR}), frozenset({HONEST}))]
    assert peer.counters.bad_signatures == 1
    assert not honest.closed


def test_forgery_is_not_passed_on_again_after_the_true_report() -> None:
    """Otherwise two peers, each with one of them, would send them to each other forever."""
    runtime = FakeRuntime()
    _, toward_author, liar, honest = relay(runtime)
    forged = signed_report(VICTIM, 3, by=LIAR)
    for _ in range(5):
        liar.remote_sends(DeliveryReports((forged,)))
        honest.remote_sends(DeliveryReports((TRUE,)))
        runtime.advance(GATHERED_S)
    assert reports_sent(toward_author).count(forged) == 1
    assert reports_sent(toward_author).count(TRUE) == 1


def test_older_report_of_a_member_that_cannot_be_verified_is_not_passed_on() -> None:
    runtime = FakeRuntime()
    _, toward_author, _, honest = relay(runtime)
    unlisted = 10_000
    for last in (2, 1, 2, 1):
        honest.remote_sends(DeliveryReports((signed_report(unlisted, last),)))
        runtime.advance(GATHERED_S)
    assert signed_report(unlisted, 1) not in reports_sent(toward_author)
    assert reports_sent(toward_author).count(signed_report(unlisted, 2)) == 1
