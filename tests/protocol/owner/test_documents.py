"""How documents of the owner spread, and what a hostile neighbor can do about it. On a manual clock."""

import hashlib

import pytest

from broadloom.protocol import Peer
from broadloom.protocol.events import CardChanged, ChannelClosed, LinkDown, LinkDownReason, PeerState, Rejected, Revoked
from broadloom.protocol.identity import Identity
from broadloom.protocol.owner.card import CardState, ChannelCard, encode_card
from broadloom.protocol.owner.documents import UNDELIVERED_S, WANT_TIMEOUT_S, OwnerDocumentError
from broadloom.protocol.owner.owner import CLOSED_LINGER_S
from broadloom.testing.sim.owner import SimOwnerVerifier, sign_document
from broadloom.wire.exchange_messages import DiscoverRequest, DiscoverResponse, Reject, RejectReason
from broadloom.wire.owner_messages import OwnerDocument, OwnerDocumentKind, OwnerNotice, OwnerWant
from tests.protocol.fake_runtime import (
    CHANNEL,
    ME,
    NO_TIMEOUT,
    FakeConnection,
    FakeRuntime,
    hello,
    link,
    open_exchange,
    peer_info,
)
from tests.protocol.signed_runtime import FakeSigner

CARD, LIST = OwnerDocumentKind.CARD, OwnerDocumentKind.REVOCATION_LIST
LIAR, HONEST, OTHER = 2, 3, 4
SERIALS = {LIAR: "0000000000000002", HONEST: "0000000000000003", OTHER: "0000000000000004", ME: "00000000000003e8"}


def card(number: int, **fields: object) -> bytes:
    return sign_document(CARD, number, encode_card(ChannelCard("a/b", number=number, **fields)))  # type: ignore[arg-type]


def revocations(number: int, *members: int) -> bytes:
    return sign_document(LIST, number, "".join(SERIALS[each] for each in members).encode())


def notice(kind: OwnerDocumentKind, number: int, document: bytes) -> OwnerNotice:
    return OwnerNotice(kind, number, hashlib.sha256(document).digest())


def owned_peer(runtime: FakeRuntime) -> Peer:
    verifier = SimOwnerVerifier(Identity(ME, "me", ticket_serial=SERIALS[ME]))
    peer = Peer(runtime, peer_info(ME), CHANNEL, (), NO_TIMEOUT, roster_signer=FakeSigner(ME), owner_verifier=verifier)
    peer.start()
    peer.create_channel()
    return peer


def neighbor(peer: Peer, peer_id: int) -> FakeConnection:
    connection = link(peer, peer_id)
    connection.identity = Identity(peer_id, f"peer {peer_id}", ticket_serial=SERIALS[peer_id])
    return connection


def last_want(connection: FakeConnection) -> OwnerWant:
    return connection.sent_messages(OwnerWant)[-1]


def test_higher_number_is_requested_once_verified_and_announced_on() -> None:
    runtime = FakeRuntime()
    peer = owned_peer(runtime)
    first, second, third = (neighbor(peer, each) for each in (LIAR, HONEST, OTHER))
    first.remote_sends(notice(CARD, 7, card(7)))
    second.remote_sends(notice(CARD, 7, card(7)))
    assert first.sent_messages(OwnerWant) == [OwnerWant(CARD, 7)]
    assert not second.sent_messages(OwnerWant)
    first.remote_sends(OwnerDocument(CARD, card(7)))
    assert [event.card.number for event in runtime.events if isinstance(event, CardChanged)] == [7]
    assert [each.document_number for each in third.sent_messages(OwnerNotice)] == [7]
    assert not first.sent_messages(OwnerNotice)  # they have it
    assert not second.sent_messages(OwnerNotice)
    late = link(peer, 9)
    assert late.sent_messages(OwnerNotice) == [notice(CARD, 7, card(7))]


def test_document_is_sent_again_on_request_but_not_at_once() -> None:
    runtime = FakeRuntime()
    peer = owned_peer(runtime)
    greedy = neighbor(peer, LIAR)
    peer.owner.documents.offer(CARD, card(7))
    for count in (1, 2):
        for _ in range(100):
            greedy.remote_sends(OwnerWant(CARD, 7), OwnerWant(LIST, 1))
        assert greedy.sent_messages(OwnerDocument) == [OwnerDocument(CARD, card(7))] * count
        runtime.advance(WANT_TIMEOUT_S)
    peer.owner.documents.offer(CARD, card(8))
    greedy.remote_sends(OwnerWant(CARD, 8))
    assert greedy.sent_messages(OwnerDocument)[-1] == OwnerDocument(CARD, card(8))


def test_peer_without_an_owner_ignores_documents() -> None:
    runtime = FakeRuntime()
    peer = Peer(runtime, peer_info(ME), CHANNEL, (), NO_TIMEOUT)
    peer.start()
    peer.create_channel()
    connection = link(peer, LIAR)
    connection.remote_sends(notice(CARD, 7, card(7)), OwnerWant(CARD, 1), OwnerDocument(CARD, card(7)))
    assert not connection.closed
    assert not connection.sent_messages(OwnerWant)
    assert peer.owner.card is None


FORGERIES = {
    "signed by another owner": sign_document(CARD, 7, encode_card(ChannelCard("a/b", number=7)), key=b"another"),
    "changed after it was signed": card(7)[:-1] + b" ",
    "a revocation list as a card": revocations(7),
    "empty": b"",
    "noise": bytes(range(256)),
    "older than announced": card(6),
    "another one with this number": card(7, text="another one"),
}


@pytest.mark.parametrize("document", FORGERIES.values(), ids=FORGERIES)
def test_neighbor_that_delivers_a_forgery_is_disconnected_and_others_are_asked(document: bytes) -> None:
    runtime = FakeRuntime()
    peer = owned_peer(runtime)
    liar, honest = neighbor(peer, LIAR), neighbor(peer, HONEST)
    liar.remote_sends(notice(CARD, 7, card(7)))
    honest.remote_sends(notice(CARD, 7, card(7)))
    liar.remote_sends(OwnerDocument(CARD, document))
    assert liar.closed
    assert peer.owner.card is None
    down = [event for event in runtime.events if isinstance(event, LinkDown)]
    assert [event.reason for event in down] == [LinkDownReason.PROTOCOL_ERROR]
    counters = peer.counters
    is_valid_elsewhere = document == FORGERIES["another one with this number"]
    assert counters.owner_forgeries + counters.owner_rollbacks == (0 if is_valid_elsewhere else 1)
    assert last_want(honest) == OwnerWant(CARD, 7)
    honest.remote_sends(OwnerDocument(CARD, card(7)))
    assert peer.owner.card is not None


def test_document_that_was_not_requested_is_ignored() -> None:
    runtime = FakeRuntime()
    peer = owned_peer(runtime)
    liar = neighbor(peer, LIAR)
    liar.remote_sends(OwnerDocument(CARD, card(7)), OwnerDocument(CARD, b"not even a card"))
    assert peer.owner.card is None
    assert not liar.closed


def test_neighbor_that_announces_and_does_not_deliver_is_passed_over_for_a_minute() -> None:
    runtime = FakeRuntime()
    peer = owned_peer(runtime)
    liar, honest = neighbor(peer, LIAR), neighbor(peer, HONEST)
    liar.remote_sends(notice(CARD, 7, card(7)))
    honest.remote_sends(notice(CARD, 7, card(7)))
    runtime.advance(WANT_TIMEOUT_S + 0.1)
    assert peer.counters.owner_undelivered == 1
    honest.remote_sends(OwnerDocument(CARD, card(7)))
    assert peer.owner.card is not None
    liar.remote_sends(notice(CARD, 8, b"there is no such card"))
    assert len(liar.sent_messages(OwnerWant)) == 1
    runtime.advance(UNDELIVERED_S + 2)
    assert len(liar.sent_messages(OwnerWant)) == 2  # asked again, in case it was slow


def test_document_that_arrives_after_all_neighbors_were_passed_over_is_adopted() -> None:
    runtime = FakeRuntime()
    peer = owned_peer(runtime)
    slow = [neighbor(peer, each) for each in (HONEST, OTHER)]
    document = revocations(3, LIAR)
    for each in slow:
        each.remote_sends(notice(LIST, 3, document))
    runtime.advance(2 * WANT_TIMEOUT_S + 0.1)
    assert peer.counters.owner_undelivered == 2
    slow[0].remote_sends(OwnerDocument(LIST, document))
    assert [event.serials for event in runtime.events if isinstance(event, Revoked)] == [(SERIALS[LIAR],)]
    slow[1].remote_sends(OwnerDocument(LIST, document))  # the other copy
    assert not any(each.closed for each in slow)
    slow[0].remote_sends(notice(LIST, 4, revocations(4)))
    assert last_want(slow[0]) == OwnerWant(LIST, 4), "it has delivered, so it is not passed over"


def test_late_document_other_than_the_announced_one_is_ignored() -> None:
    runtime = FakeRuntime()
    peer = owned_peer(runtime)
    liar = neighbor(peer, LIAR)
    liar.remote_sends(notice(CARD, 7, card(7)))
    runtime.advance(WANT_TIMEOUT_S + 0.1)
    liar.remote_sends(OwnerDocument(CARD, card(8)))
    assert peer.owner.card is None
    assert not liar.closed


def test_false_announcement_does_not_delay_a_true_one() -> None:
    runtime = FakeRuntime()
    peer = owned_peer(runtime)
    liar, honest = neighbor(peer, LIAR), neighbor(peer, HONEST)
    liar.remote_sends(notice(CARD, 1 << 62, b"does not exist"))
    honest.remote_sends(notice(CARD, 7, card(7)))
    assert last_want(honest) == OwnerWant(CARD, 7)
    honest.remote_sends(OwnerDocument(CARD, card(7)))
    assert peer.owner.card is not None


def test_lost_link_does_not_lose_the_request() -> None:
    runtime = FakeRuntime()
    peer = owned_peer(runtime)
    first, second = neighbor(peer, LIAR), neighbor(peer, HONEST)
    first.remote_sends(notice(CARD, 7, card(7)))
    second.remote_sends(notice(CARD, 7, card(7)))
    first.remote_closes()
    assert second.sent_messages(OwnerWant) == [OwnerWant(CARD, 7)]


def test_lower_number_and_another_document_with_the_same_number_are_refused_and_counted() -> None:
    runtime = FakeRuntime()
    peer = owned_peer(runtime)
    connection = neighbor(peer, LIAR)
    peer.owner.documents.offer(CARD, card(7))
    for document in (card(6), card(7, text="another one")):
        with pytest.raises(OwnerDocumentError, match="not higher than number 7"):
            peer.owner.documents.offer(CARD, document)
    connection.remote_sends(notice(CARD, 6, card(6)), notice(CARD, 7, card(7, text="another one")))
    assert not connection.sent_messages(OwnerWant)
    assert (peer.counters.owner_rollbacks, peer.counters.owner_conflicts) == (1, 2)
    assert peer.owner.documents.number(CARD) == 7


def test_revoked_neighbor_gets_the_proof_and_is_disconnected() -> None:
    runtime = FakeRuntime()
    peer = owned_peer(runtime)
    revoked, honest = neighbor(peer, LIAR), neighbor(peer, HONEST)
    document = revocations(3, LIAR)
    honest.remote_sends(notice(LIST, 3, document), OwnerDocument(LIST, document))
    assert revoked.closed
    assert not honest.closed
    assert revoked.sent_messages(OwnerDocument) == [OwnerDocument(LIST, document)]
    assert [event.serials for event in runtime.events if isinstance(event, Revoked)] == [(SERIALS[LIAR],)]
    again = open_exchange(peer)
    again.identity = Identity(LIAR, "peer 2", ticket_serial=SERIALS[LIAR])
    again.remote_sends(hello(LIAR))
    assert [each.reason for each in again.sent_messages(Reject)] == [RejectReason.TICKET_REVOKED]


def test_revoked_peer_reports_it_once_passes_the_list_on_and_leaves() -> None:
    runtime = FakeRuntime()
    peer = owned_peer(runtime)
    connection, other = neighbor(peer, HONEST), neighbor(peer, OTHER)
    document = revocations(3, ME)
    connection.remote_sends(notice(LIST, 3, document), OwnerDocument(LIST, document))
    connection.remote_closes()
    runtime.advance(30)
    rejected = [event for event in runtime.events if isinstance(event, Rejected)]
    assert [event.reason for event in rejected] == [RejectReason.TICKET_REVOKED]
    assert other.sent_messages(OwnerDocument) == [OwnerDocument(LIST, document)]
    assert other.closed
    assert peer.state is PeerState.LEFT


def test_closed_peer_passes_the_card_on_answers_newcomers_and_is_gone() -> None:
    runtime = FakeRuntime()
    peer = owned_peer(runtime)
    source, other = neighbor(peer, HONEST), neighbor(peer, OTHER)
    document = card(9, state=CardState.CLOSED, text="over")
    source.remote_sends(notice(CARD, 9, document), OwnerDocument(CARD, document))
    assert [event.text for event in runtime.events if isinstance(event, ChannelClosed)] == ["over"]
    assert other.sent_messages(OwnerDocument) == [OwnerDocument(CARD, document)]
    assert other.closed
    newcomer = open_exchange(peer)
    newcomer.remote_sends(hello(9), DiscoverRequest(False, 0, ()))
    assert newcomer.sent_messages(OwnerDocument) == [OwnerDocument(CARD, document)]
    assert [each.reason for each in newcomer.sent_messages(Reject)] == [RejectReason.CHANNEL_CLOSED]
    runtime.advance(CLOSED_LINGER_S + 0.1)
    assert peer.state is PeerState.LEFT


def test_newcomer_gets_the_card_and_members_do_not() -> None:
    runtime = FakeRuntime()
    peer = owned_peer(runtime)
    peer.owner.documents.offer(CARD, card(7))
    newcomer, member = open_exchange(peer), open_exchange(peer)
    newcomer.remote_sends(hello(9), DiscoverRequest(False, 0, ()))
    member.remote_sends(hello(10), DiscoverRequest(True, 0, ()))
    assert newcomer.sent_messages(OwnerDocument) == [OwnerDocument(CARD, card(7))]
    assert newcomer.sent_messages(DiscoverResponse)
    assert not member.sent_messages(OwnerDocument)
