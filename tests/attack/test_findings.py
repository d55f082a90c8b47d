"""Attacks that have succeeded once. What still does is marked as a known failure, and speaks up when it is mended."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import broadloom
from broadloom import ChannelSettings
from broadloom.channel.fragments import FRAGMENT_BYTES
from broadloom.channel.peer_set import PeerSetMerge
from broadloom.protocol import ChannelName, Tuning
from broadloom.protocol.events import Missed
from broadloom.protocol.identity import Role
from broadloom.security import Authority, PeerCredentials, revoke_tickets
from broadloom.transport.limits import Limits, TcpTuning
from broadloom.wire import Broadcast
from broadloom.wire.link_messages import Heartbeat, LastKnown, Want
from broadloom.wire.types import AuthorState
from tests.attack.harness import async_test, attack_harness, wait_until
from tests.attack.test_crowds import SILENT_CONNECTIONS, join_time_s
from tests.attack.test_members import issue_tickets

LONG_AGO_MS = 10**9


@async_test
async def test_no_author_is_muted_by_tales_that_can_be_believed() -> None:
    """Of messages that were said long ago and cannot be had any more; told again and again."""
    async with attack_harness(signed=True, allow_missed=True) as of:
        attacker = await of.hostile_neighbor()
        author = of.channels[1].peer_id
        for _ in range(3):
            attacker.send(LastKnown((AuthorState(author, 1, of.sent[author] + 5000, LONG_AGO_MS),)))
            await of.wait_for_traffic(50)
        heard = len(of.received[of.victim.peer_id])
        await wait_until(lambda: sum(each.author == author for each in of.received[of.victim.peer_id][heard:]) > 5, 3)


@async_test
async def test_no_author_is_kept_out_by_a_tale_of_many() -> None:
    async with attack_harness(signed=True, settings=Tuning(authors_max=1000)) as of:
        attacker = await of.hostile_neighbor()
        attacker.send(LastKnown(tuple(AuthorState(name, 1, 1, 0) for name in range(1, 2000))))
        await of.wait_for_traffic(50)
        async with broadloom.connect(of.name, key=of.options["key"], signed=True) as newcomer:
            await newcomer.broadcast(b"does anybody hear me?")
            await wait_until(lambda: len(of.foreign_messages) == len(of.channels), 3)


@async_test
async def test_a_withdrawn_author_whom_a_neighbour_still_admits(tmp_path: Path) -> None:
    owner, path = Authority.generate(), tmp_path / "withdrawn.pem"
    eve = owner.issue_ticket("eve", Role.PRODUCER, datetime.now(UTC) + timedelta(days=1))
    name = f"attack/{tmp_path.name}-{owner.certificate.serial_number}-{id(owner)}"
    async with attack_harness(tickets=issue_tickets(owner, 2), name=name) as of:
        revoke_tickets(owner, path, [eve.serial])
        ticket = owner.issue_ticket("strict", Role.PRODUCER, datetime.now(UTC) + timedelta(days=1))
        async with broadloom.connect(of.name, ticket=ticket, revocation_list=path) as strict:
            attacker = await of.hostile_neighbor(PeerCredentials.from_ticket(ChannelName.parse(of.name), eve))
            attacker.send(attacker.credential(), attacker.signed(Broadcast(attacker.peer_id, 1, 1, (b"still here",))))
            await wait_until(lambda: strict.status().counters["bad_credentials"] > 0)
            await of.wait_for_traffic(50)
            assert strict.status().counters["bad_credentials"] < 20


@async_test
async def test_members_that_say_hello_and_nothing_more() -> None:
    async with attack_harness(settings=ChannelSettings(exchange_timeout_s=15)) as of:
        member = of.member_credentials()
        for _ in range(SILENT_CONNECTIONS):
            attacker = await of.attack(member)
            attacker.send(attacker.hello())
        await of.wait_for_traffic(5)
        assert await join_time_s(of) < 1


@pytest.mark.timeout(2)
def test_a_gap_of_any_size_is_told_at_once_by_peers_that_act_as_one() -> None:
    told: list[Missed] = []
    merge = PeerSetMerge(1, lambda _message: None, told.append)
    merge.on_primary_missed(Missed(7, 1, 1 << 62))
    assert told == [Missed(7, 1, 1 << 62)]


@async_test
async def test_a_message_that_a_program_stumbles_over() -> None:
    async with attack_harness(signed=True) as of:
        attacker = await of.hostile_neighbor()
        for channel in of.channels:
            deliver = channel._batch_callback
            assert deliver is not None

            def stumbling(message: broadloom.Message, deliver=deliver) -> None:
                deliver(broadloom.Batch.from_message(message))
                if message.data == b"poison":
                    raise ValueError("this program has a mistake")

            channel.on_message(stumbling)
        attacker.send(attacker.credential(), attacker.signed(Broadcast(attacker.peer_id, 1, 1, (b"poison",))))
        await wait_until(lambda: len(of.foreign_messages) == len(of.channels))
        await of.wait_for_traffic(10)
        assert not of.broken_links


@async_test
async def test_questions_for_what_is_not_there() -> None:
    async with attack_harness() as of:
        attacker = await of.hostile_neighbor()
        attacker.send(LastKnown((AuthorState(12345, 1, 1 << 20, 0),)))
        attacker.send(*[Want(12345, 1, 4096)] * 1500)
        await of.wait_for_traffic(50)
        assert of.lag_s < 0.5


@async_test
async def test_an_author_is_not_muted_by_neighbours_that_do_not_read() -> None:
    settings = TcpTuning(send_queue_bytes_max=1 << 20, limits=Limits(high_water_bytes=64 << 10, stall_timeout_s=0.3))
    async with attack_harness(2, settings=settings, signed=True) as of:
        deaf = [await of.hostile_neighbor() for _ in range(2)]
        for each in deaf:
            each.pause_reading()
        async with asyncio.timeout(3):
            for _ in range(240):
                for each in deaf:
                    each.send(Heartbeat())
                of.sent[of.victim.peer_id] = await of.victim.broadcast(bytes(FRAGMENT_BYTES))
