"""Cards and revocation lists, the same on the simulator and on real sockets with tickets."""

from collections.abc import AsyncIterator

import pytest

from broadloom.protocol import PeerState, Tuning
from broadloom.protocol.events import CardChanged, ChannelClosed, Rejected, Revoked
from broadloom.protocol.owner.card import CardState
from broadloom.wire.exchange_messages import RejectReason
from broadloom.wire.owner_messages import OwnerDocumentKind
from tests.behavior.harness import HarnessPeer, SimHarness, SocketHarness

CARD, LIST = OwnerDocumentKind.CARD, OwnerDocumentKind.REVOCATION_LIST

OwnedHarness = SimHarness | SocketHarness


@pytest.fixture(params=["simulated", "tickets"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[OwnedHarness]:
    settings = Tuning(discovery_retry_s=0.1)
    opened: OwnedHarness = (
        SimHarness(settings, has_owner=True)
        if request.param == "simulated"
        else SocketHarness(settings, tls=True, signed=True, has_owner=True)
    )
    yield opened
    await opened.close()


def publish(peer: HarnessPeer, kind: OwnerDocumentKind, document: bytes) -> None:
    peer.peer.owner.documents.offer(kind, document)


def events_of(peer: HarnessPeer, kind: type) -> list[object]:
    return [event for event in peer.events if isinstance(event, kind)]


async def test_revoked_member_is_out_everywhere(harness: OwnedHarness) -> None:
    peers = await harness.add(7)
    victim, others = peers[3], [*peers[:3], *peers[4:]]
    await harness.until(lambda: all(len(peer.peer.roster.peer_ids()) == 7 for peer in peers))
    publish(others[5], LIST, harness.sign_revocations([victim]))
    await harness.until(lambda: all(victim.id not in peer.peer.roster.peer_ids() for peer in others), 10)
    assert not victim.neighbors
    assert all(victim.id not in peer.neighbors for peer in others)
    assert all(len(events_of(peer, Revoked)) == 1 for peer in others)
    (rejected,) = events_of(victim, Rejected)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is RejectReason.TICKET_REVOKED


async def test_higher_number_wins_when_a_partition_heals(harness: OwnedHarness) -> None:
    peers = await harness.add(6)
    here, there = peers[:3], peers[3:]
    harness.partition(here)
    await harness.until(lambda: all(peer.id not in here[0].neighbors for peer in there), 20)
    publish(here[0], CARD, harness.sign_card(text="first"))
    publish(there[0], CARD, harness.sign_card(text="second"))
    harness.heal()
    await harness.until(lambda: all(p.peer.owner.card and p.peer.owner.card.text == "second" for p in peers), 40)
    assert [event.card.text for event in events_of(here[0], CardChanged)] == ["first", "second"]  # type: ignore[attr-defined]


async def test_closed_card_ends_the_channel(harness: OwnedHarness) -> None:
    peers = await harness.add(6)
    publish(peers[2], CARD, harness.sign_card(state=CardState.CLOSED, text="over"))
    await harness.until(lambda: all(peer.peer.state is PeerState.LEFT for peer in peers), 10)
    assert all([event.text for event in events_of(peer, ChannelClosed)] == ["over"] for peer in peers)  # type: ignore[attr-defined]
