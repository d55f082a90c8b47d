"""Messages with a receipt, and reports of members that a test plays, for a peer on a fake runtime."""

from broadloom.protocol import Peer
from broadloom.protocol.receipts.reporter import REPORT_PURPOSE
from broadloom.wire import Broadcast, PeerId
from broadloom.wire.payload_kind import WANTS_RECEIPT
from broadloom.wire.receipt_messages import DeliveryReport, DeliveryReports, decode_report, encode_report
from broadloom.wire.types import SignedReport
from tests.protocol.fake_runtime import CHANNEL, FakeConnection
from tests.protocol.signed_runtime import FakeSigner

AUTHOR = 71
GATHERED_S = 0.1
"""Longer than reports are gathered."""


def with_receipt(sequence: int, author: PeerId = AUTHOR, *, ttl_ms: int = 0, age_ms: int = 0) -> Broadcast:
    return Broadcast(author, sequence, 1, (b"%d" % sequence,), hops=2, kind=WANTS_RECEIPT, ttl_ms=ttl_ms, age_ms=age_ms)


def signed_report(
    member: PeerId, last: int, *, first: int = 1, author: PeerId = AUTHOR, by: PeerId | None = None
) -> SignedReport:
    """`by`: the member that signs it, if it is forged."""
    data = encode_report(DeliveryReport(member, author, first, last, ()))
    signer = FakeSigner(member if by is None else by)
    return SignedReport(data, signer.sign(REPORT_PURPOSE + CHANNEL + data))


def reports_sent(connection: FakeConnection) -> list[SignedReport]:
    return [each for message in connection.sent_messages(DeliveryReports) for each in message.reports]


def decoded_reports(connection: FakeConnection, member: PeerId) -> list[DeliveryReport]:
    """What the peer sent over this connection about the deliveries of this member."""
    decoded = [decode_report(each.report) for each in reports_sent(connection)]
    return [each for each in decoded if each.peer_id == member]


def count_verifications(peer: Peer) -> list[PeerId]:
    """The members whose signatures the peer verifies from now on."""
    verified: list[PeerId] = []
    verify = peer.roster.is_signed_by

    def is_signed_by(peer_id: PeerId, purpose: bytes, data: bytes, signature: bytes) -> bool:
        verified.append(peer_id)
        return verify(peer_id, purpose, data, signature)

    peer.roster.is_signed_by = is_signed_by  # type: ignore[method-assign]
    return verified
