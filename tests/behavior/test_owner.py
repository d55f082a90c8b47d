"""Cards, quotas and revocation lists, the same on the simulator and on real sockets with tickets."""

from collections.abc import AsyncIterator

import pytest

from broadloom.protocol import PeerState, Tuning
from broadloom.protocol.events import CardChanged, ChannelClosed, QuotaExceeded, Rejected, Revoked
from broadloom.protocol.owner import meter, quotas
from broadloom.protocol.owner.card import CardState, Quota
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


# -- quotas

PER_S = 100
CAPACITY = int((1 + meter.SLACK_S) * PER_S)
"""Messages that receivers accept at once under `Quota(PER_S, burst_s=1)`."""


async def open_with_quota(harness: OwnedHarness, monkeypatch: pytest.MonkeyPatch) -> list[HarnessPeer]:
    """Five members in a full mesh, each with a quota and heard before; members are counted from the start."""
    monkeypatch.setattr(meter, "GRACE_S", 0.0)
    monkeypatch.setattr(quotas, "GRACE_S", 0.0)
    peers = await harness.add(5)
    await harness.until(lambda: all(len(peer.neighbors) == 4 for peer in peers))
    publish(peers[0], CARD, harness.sign_card(quotas={"producer": Quota(messages_per_s=PER_S, burst_s=1)}))
    await harness.until(lambda: all(peer.peer.owner.pacer is not None for peer in peers))
    for peer in peers:
        peer.send(b"first")
    await harness.until(lambda: all(has_all_of(peer, author) for peer in peers for author in peers))
    return peers


def has_all_of(peer: HarnessPeer, author: HarnessPeer) -> bool:
    """Each message once, in order."""
    return peer is author or peer.received_from(author) == list(enumerate(author.sent, 1))


def held_count(peers: list[HarnessPeer]) -> int:
    return sum(peer.peer.counters.quota_held for peer in peers)


async def test_author_that_keeps_to_its_quota_is_not_held_back(
    harness: OwnedHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = await open_with_quota(harness, monkeypatch)
    author, pacer = peers[1], peers[1].peer.owner.pacer
    assert pacer is not None

    def has_sent_enough() -> bool:
        """As fast as the quota allows."""
        while len(author.sent) < 2 * PER_S and not pacer.delay_s(1):
            pacer.take(1)
            author.send(b"x")
        return len(author.sent) == 2 * PER_S

    await harness.until(has_sent_enough)
    await harness.until(lambda: all(has_all_of(peer, author) for peer in peers))
    assert not held_count(peers)
    assert not any(events_of(peer, QuotaExceeded) for peer in peers)


async def test_author_ahead_of_its_quota_is_held_back_and_loses_nothing(
    harness: OwnedHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = await open_with_quota(harness, monkeypatch)
    author, other = peers[1:3]
    for _ in range(CAPACITY + PER_S):  # a second ahead
        author.send(b"x")
    await harness.until(lambda: all(peer.peer.counters.quota_held for peer in peers if peer is not author))
    other.send(b"of a member that keeps to its quota")
    await harness.until(lambda: all(has_all_of(peer, sender) for peer in peers for sender in peers))
    assert not any(events_of(peer, QuotaExceeded) for peer in peers)


async def test_author_far_ahead_of_its_quota_is_cut_off_and_named_by_every_neighbor(
    harness: OwnedHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = await open_with_quota(harness, monkeypatch)
    offender, others = peers[1], [peers[0], *peers[2:]]
    for _ in range(CAPACITY + int(2 * quotas.AHEAD_S_MAX * PER_S)):
        offender.send(b"x")
    await harness.until(lambda: all(events_of(peer, QuotaExceeded) for peer in others))
    await harness.until(lambda: not offender.neighbors and events_of(offender, Rejected))
    for peer in others:
        (named,) = events_of(peer, QuotaExceeded)
        assert isinstance(named, QuotaExceeded)
        assert (named.peer_id, named.what, named.allowed) == (offender.id, "messages", PER_S)
        peer.send(b"the others go on")
    rejected = events_of(offender, Rejected)[0]
    assert isinstance(rejected, Rejected)
    assert rejected.reason is RejectReason.QUOTA_EXCEEDED
    await harness.until(lambda: all(has_all_of(peer, author) for peer in others for author in others))
    assert all(not has_all_of(peer, offender) for peer in others)
