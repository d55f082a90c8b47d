"""Attacks on what the owner signs, by members of a channel with tickets, over real sockets."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import broadloom
from broadloom import Authority, ChannelCard, LinkDown, LinkDownReason, Quota, QuotaExceeded, Role, SignedCard
from broadloom.protocol import ChannelName
from broadloom.protocol.owner import meter, quotas
from broadloom.security import PeerCredentials
from broadloom.wire.owner_messages import OwnerDocument, OwnerDocumentKind, OwnerNotice, OwnerWant
from tests.attack.attacker import Attacker
from tests.attack.harness import SEND_INTERVAL_S, AttackHarness, attack_harness, issue_tickets
from tests.support import TIMEOUT_S, eventually

CARD = OwnerDocumentKind.CARD


@asynccontextmanager
async def attacked(owner: Authority) -> AsyncIterator[tuple[AttackHarness, Attacker]]:
    """Three honest members, and a neighbor of the first with a valid ticket."""
    async with attack_harness(tickets=issue_tickets(owner)) as harness:
        ticket = owner.issue_ticket("eve", Role.PRODUCER, datetime.now(UTC) + timedelta(days=1))
        credentials = PeerCredentials.from_ticket(ChannelName.parse(harness.name), ticket)
        yield harness, await harness.hostile_neighbor(credentials)


def notice(number: int, document: bytes) -> OwnerNotice:
    return OwnerNotice(CARD, number, hashlib.sha256(document).digest())


async def test_forged_card_closes_nothing_but_the_link_of_the_forger() -> None:
    owner = Authority.generate()
    async with attacked(owner) as (harness, eve):
        forged = SignedCard.sign(Authority.generate(), ChannelCard(harness.name).closed("all of you, go"))
        eve.send(notice(forged.card.number, forged.document), OwnerDocument(CARD, forged.document))
        await eve.until_closed()
        assert harness.counter_total("owner_forgeries") == 1
        assert all(channel.card is None and channel.is_connected for channel in harness.channels)


async def test_old_card_is_not_accepted_again() -> None:
    owner = Authority.generate()
    async with attacked(owner) as (harness, eve):
        old = SignedCard.sign(owner, ChannelCard(harness.name, text="old"))
        new = SignedCard.sign(owner, replace(old.card, number=0, text="new"), after=old)
        await harness.channels[2].publish(new)
        await eventually(lambda: all(channel.card == new.card for channel in harness.channels))
        eve.send(notice(old.card.number, old.document), OwnerDocument(CARD, old.document))  # ignored: not requested
        eve.send(notice(new.card.number + 1, old.document), OwnerDocument(CARD, old.document))
        await eve.until_closed()
        assert harness.counter_total("owner_rollbacks") == 1
        assert all(channel.card == new.card for channel in harness.channels)


async def test_neighbor_that_does_not_deliver_does_not_keep_a_card_from_its_victim() -> None:
    owner = Authority.generate()
    async with attacked(owner) as (harness, eve):
        card = SignedCard.sign(owner, ChannelCard(harness.name))
        eve.send(notice(card.card.number, card.document))
        await eve.until(OwnerWant)
        await harness.channels[1].publish(card)
        await eventually(lambda: harness.victim.card == card.card)


async def test_endless_requests_are_answered_once() -> None:
    owner = Authority.generate()
    async with attacked(owner) as (harness, eve):
        card = SignedCard.sign(owner, ChannelCard(harness.name))
        await harness.victim.publish(card)
        await eve.until(OwnerNotice)
        eve.send(*[OwnerWant(CARD, 1)] * 1000)
        await eve.until(OwnerDocument)
        await harness.wait_for_traffic(5)
        assert sum(isinstance(each, OwnerDocument) for each in eve.received) == 1


async def send_too_much(channel: broadloom.Channel, per_s: float, is_cut: Callable[[], bool]) -> None:
    """At this rate, however busy the machine is."""
    loop = asyncio.get_running_loop()
    began, sent = loop.time(), 0
    async with asyncio.timeout(3 * TIMEOUT_S):
        while not is_cut():
            while sent < per_s * (loop.time() - began):
                channel.broadcast_nowait(b"too much")
                sent += 1
            await asyncio.sleep(0.02)


async def flood_run(messages_per_s: float) -> None:
    """One member sends as fast as its links take it; the others stay within their quotas."""
    owner = Authority.generate()
    async with attack_harness(tickets=issue_tickets(owner)) as harness:
        quota = Quota(messages_per_s=messages_per_s, requests_per_s=10)
        card = SignedCard.sign(owner, ChannelCard(harness.name, quotas={"producer": quota}))
        await harness.victim.publish(card)
        ticket = owner.issue_ticket("eve", Role.PRODUCER, datetime.now(UTC) + timedelta(days=1))
        events: list[object] = []
        for channel in harness.channels:
            channel.on_event(events.append)
        eve = await broadloom.connect(harness.name, ticket=ticket)
        try:
            await eventually(lambda: eve.card is not None)
            eve._pacer = None
            await send_too_much(eve, 10 * messages_per_s, lambda: not eve.status().neighbors)
        finally:
            eve.abort()
        named = [event for event in events if isinstance(event, QuotaExceeded)]
        assert {(event.name, event.what) for event in named} == {("eve", "messages")}
        assert all(event.measured > 2 * event.allowed for event in named)
        down = [event for event in events if isinstance(event, LinkDown) and event.neighbor.peer_id == eve.peer_id]
        assert {event.reason for event in down} >= {LinkDownReason.QUOTA_EXCEEDED}
        assert harness.counter_total("quota_held") > 0
        with pytest.raises(broadloom.RejectedError, match="exceeded its quota"):
            await broadloom.connect(harness.name, ticket=ticket)
        assert {event.peer_id for event in events if isinstance(event, QuotaExceeded)} == {eve.peer_id}


async def test_author_over_its_quota_is_cut_and_named_and_the_others_lose_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(meter, "GRACE_S", 0.2)
    monkeypatch.setattr(quotas, "GRACE_S", 0.2)
    await flood_run(messages_per_s=1.2 / SEND_INTERVAL_S)


@pytest.mark.long
async def test_author_over_its_quota_is_cut_after_the_grace_period() -> None:
    await flood_run(messages_per_s=1.2 / SEND_INTERVAL_S)


async def test_message_larger_than_the_card_allows_cuts_its_author(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "GRACE_S", 0.0)
    owner = Authority.generate()
    async with attack_harness(tickets=issue_tickets(owner)) as harness:
        card = SignedCard.sign(owner, ChannelCard(harness.name, quotas={"producer": Quota(message_bytes_max=100)}))
        await harness.victim.publish(card)
        ticket = owner.issue_ticket("eve", Role.PRODUCER, datetime.now(UTC) + timedelta(days=1))
        events: list[object] = []
        for channel in harness.channels:
            channel.on_event(events.append)
        eve = await broadloom.connect(harness.name, ticket=ticket)
        try:
            await eventually(lambda: eve.card is not None)
            await eve.broadcast(b"small")
            await eventually(lambda: len(harness.foreign_messages) == len(harness.channels))
            eve._pacer = None
            eve.broadcast_nowait(bytes(101))
            await eventually(lambda: not eve.status().neighbors)
        finally:
            eve.abort()
        named = {(event.name, event.what, event.measured) for event in events if isinstance(event, QuotaExceeded)}
        assert named == {("eve", "message_bytes", 101)}
