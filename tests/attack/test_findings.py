"""Attacks that once succeeded."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import broadloom
from broadloom.channel.fragments import FRAGMENT_BYTES
from broadloom.channel.peer_set import PeerSetMerge
from broadloom.protocol import ChannelName, Tuning
from broadloom.protocol.events import Missed
from broadloom.protocol.identity import Role
from broadloom.security import Authority, PeerCredentials, revoke_tickets
from broadloom.transport.limits import Limits, TcpTuning
from broadloom.wire import Broadcast
from broadloom.wire.exchange_messages import Reject, RejectReason
from broadloom.wire.link_messages import Heartbeat, LastKnown, Want
from broadloom.wire.types import AuthorState
from tests.attack.harness import SEND_INTERVAL_S, attack_harness, issue_tickets, signed_modes, tls_modes
from tests.attack.test_crowds import PATIENT, SILENT_CONNECTIONS, assert_newcomer_joins
from tests.support import TIMEOUT_S, eventually

LONG_AGO_MS = 10**9


@signed_modes
async def test_plausible_false_claims_do_not_mute_an_author(mode: dict[str, Any]) -> None:
    """Repeated claims about messages that are long past retention. Nothing proves them, so none is reported as missed.
    Gaps are checked more often than the author sends, so that the claims are examined while it does."""
    async with attack_harness(settings=Tuning(gap_repair_delay_s=SEND_INTERVAL_S / 4), **mode) as harness:
        attacker = await harness.hostile_neighbor()
        author = harness.channels[1].peer_id
        for _ in range(3):
            attacker.send(LastKnown((AuthorState(author, 1, harness.sent[author] + 5000, LONG_AGO_MS),)))
            await harness.wait_for_traffic(50)
        count = len(harness.received[harness.victim.peer_id])
        await eventually(
            lambda: sum(each.author == author for each in harness.received[harness.victim.peer_id][count:]) > 5
        )


@signed_modes
async def test_claims_about_many_authors_do_not_block_new_authors(mode: dict[str, Any]) -> None:
    async with attack_harness(settings=Tuning(authors_max=1000), **mode) as harness:
        attacker = await harness.hostile_neighbor()
        attacker.send(LastKnown(tuple(AuthorState(name, 1, 1, 0) for name in range(1, 2000))))
        await harness.wait_for_traffic(50)
        async with broadloom.connect(harness.name, **harness.newcomer_options()) as newcomer:
            await newcomer.broadcast(b"hello")
            await eventually(lambda: len(harness.foreign_messages) == len(harness.channels))


async def test_revocation_list_of_a_newcomer_puts_out_a_member_that_is_linked_already(tmp_path: Path) -> None:
    owner, path = Authority.generate(), tmp_path / "revoked.pem"
    eve = owner.issue_ticket("eve", Role.PRODUCER, datetime.now(UTC) + timedelta(days=1))
    name = f"attack/{tmp_path.name}-{owner.certificate.serial_number}-{id(owner)}"
    async with attack_harness(tickets=issue_tickets(owner, 2), name=name) as harness:
        attacker = await harness.hostile_neighbor(PeerCredentials.from_ticket(ChannelName.parse(harness.name), eve))
        assert harness.is_neighbor(attacker)
        revoke_tickets(owner, path, [eve.serial])
        ticket = owner.issue_ticket("strict", Role.PRODUCER, datetime.now(UTC) + timedelta(days=1))
        async with broadloom.connect(harness.name, ticket=ticket, revocation_list=path) as strict:
            await eventually(lambda: not harness.is_neighbor(attacker))
            await eventually(lambda: attacker.is_closed)
            again = await harness.attack(PeerCredentials.from_ticket(ChannelName.parse(harness.name), eve))
            again.send(again.hello())
            rejection = await again.until(Reject)
            assert rejection.reason is RejectReason.TICKET_REVOKED
            await harness.wait_for_traffic(50)
            assert strict.is_connected


@tls_modes
async def test_newcomer_joins_despite_silent_members(mode: dict[str, Any]) -> None:
    async with attack_harness(settings=PATIENT, **mode) as harness:
        member = harness.member_credentials()
        for _ in range(SILENT_CONNECTIONS):
            attacker = await harness.attack(member)
            attacker.send(attacker.hello(signed=harness.is_signed))
        await harness.wait_for_traffic(5)
        await assert_newcomer_joins(harness)


@pytest.mark.timeout(30)
def test_peer_set_reports_gap_of_any_size_at_once() -> None:
    reported: list[Missed] = []
    merge = PeerSetMerge(1, lambda _message: None, reported.append)
    merge.on_primary_missed(Missed(7, 1, 1 << 62))
    assert reported == [Missed(7, 1, 1 << 62)]


@signed_modes
async def test_exception_in_message_callback_breaks_no_link(mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as harness:
        attacker = await harness.hostile_neighbor()
        for channel in harness.channels:
            deliver = channel._batch_callback
            assert deliver is not None

            def failing_callback(message: broadloom.Message, deliver=deliver) -> None:
                deliver(broadloom.Batch.from_message(message))
                if message.data == b"poison":
                    raise ValueError("bug in the application")

            channel.on_message(failing_callback)
        attacker.send(attacker.credential(), attacker.signed(Broadcast(attacker.peer_id, 1, 1, (b"poison",))))
        await eventually(lambda: len(harness.foreign_messages) == len(harness.channels))
        await harness.wait_for_traffic(10)
        assert not harness.broken_links


@tls_modes
async def test_wants_for_nonexistent_messages_do_not_block_the_loop(mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as harness:
        attacker = await harness.hostile_neighbor()
        attacker.send(LastKnown((AuthorState(12345, 1, 1 << 20, 0),)))
        attacker.send(*[Want(12345, 1, 4096)] * 1500)
        await harness.wait_for_traffic(50)
        assert harness.lag_s < 0.5


@signed_modes
async def test_stalled_neighbors_do_not_mute_an_author(mode: dict[str, Any]) -> None:
    settings = TcpTuning(send_queue_bytes_max=1 << 20, limits=Limits(high_water_bytes=64 << 10, stall_timeout_s=0.3))
    async with attack_harness(2, settings=settings, **mode) as harness:
        stalled = [await harness.hostile_neighbor() for _ in range(2)]
        for each in stalled:
            each.pause_reading()
        async with asyncio.timeout(TIMEOUT_S):
            for _ in range(240):
                for each in stalled:
                    each.send(Heartbeat())
                harness.sent[harness.victim.peer_id] = await harness.victim.broadcast(bytes(FRAGMENT_BYTES))
