"""Attacks that have succeeded once. What still does is marked as a known failure, and speaks up when it is mended."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import weft
from tests.attack.stage import eventually, over_sockets, stage
from tests.attack.test_crowds import SILENT_CALLERS, a_newcomer_gets_in
from tests.attack.test_members import tickets_of
from weft import Limits, Settings
from weft.channel.large import PART_BYTES
from weft.channel.merge import Merge
from weft.fabric import ChannelName
from weft.fabric.events import Missed
from weft.fabric.seal import Role
from weft.security import Authority, Membership, revoke
from weft.wire import Broadcast
from weft.wire.links import Heartbeat, Known, Want
from weft.wire.types import Have

LONG_AGO_MS = 10**9


@over_sockets
async def test_no_author_is_muted_by_tales_that_can_be_believed() -> None:
    """Of messages that were said long ago and cannot be had any more; told again and again."""
    async with stage(signed=True, may_miss=True) as of:
        attacker = await of.neighbour()
        author = of.channels[1].peer
        for _ in range(3):
            attacker.send(Known((Have(author, 1, of.said[author] + 5000, LONG_AGO_MS),)))
            await of.talk_goes_on(50)
        heard = len(of.got[of.victim.peer])
        await eventually(lambda: sum(each.author == author for each in of.got[of.victim.peer][heard:]) > 5, 3)


@over_sockets
async def test_no_author_is_kept_out_by_a_tale_of_many() -> None:
    async with stage(signed=True, settings=Settings(authors_max=1000)) as of:
        attacker = await of.neighbour()
        attacker.send(Known(tuple(Have(name, 1, 1, 0) for name in range(1, 2000))))
        await of.talk_goes_on(50)
        async with weft.connect(of.name, key=of.options["key"], signed=True) as newcomer:
            await newcomer.broadcast(b"does anybody hear me?")
            await eventually(lambda: len(of.strangers_heard) == len(of.channels), 3)


@over_sockets
async def test_a_withdrawn_author_whom_a_neighbour_still_admits(tmp_path: Path) -> None:
    owner, path = Authority.new(), tmp_path / "withdrawn.pem"
    eve = owner.issue_ticket("eve", Role.PRODUCER, datetime.now(UTC) + timedelta(days=1))
    name = f"attack/{tmp_path.name}-{owner.certificate.serial_number}-{id(owner)}"
    async with stage(tickets=tickets_of(owner, 2), name=name) as of:
        revoke(owner, path, [eve.serial])
        ticket = owner.issue_ticket("strict", Role.PRODUCER, datetime.now(UTC) + timedelta(days=1))
        async with weft.connect(of.name, ticket=ticket, revoked=path) as strict:
            attacker = await of.neighbour(Membership.from_ticket(ChannelName.parse(of.name), eve))
            attacker.send(attacker.credential(), attacker.signed(Broadcast(attacker.peer, 1, 1, (b"still here",))))
            await eventually(lambda: strict.status().counters["unproven"] > 0)
            await of.talk_goes_on(50)
            assert strict.status().counters["unproven"] < 20


@over_sockets
async def test_members_that_say_hello_and_nothing_more() -> None:
    async with stage(settings=Settings(call_s=15)) as of:
        member = of.member()
        for _ in range(SILENT_CALLERS):
            attacker = await of.attack(member)
            attacker.send(attacker.hello())
        await of.talk_goes_on(5)
        assert await a_newcomer_gets_in(of) < 1


@pytest.mark.timeout(2)
def test_a_gap_of_any_size_is_told_at_once_by_peers_that_act_as_one() -> None:
    told: list[Missed] = []
    merge = Merge(lambda _message: None, told.append)
    merge.missed_by_leader(Missed(7, 1, 1 << 62))
    assert told == [Missed(7, 1, 1 << 62)]


@over_sockets
async def test_a_message_that_a_program_stumbles_over() -> None:
    async with stage(signed=True) as of:
        attacker = await of.neighbour()
        for channel in of.channels:
            deliver = channel._on_batch
            assert deliver is not None

            def stumbling(message: weft.Message, deliver=deliver) -> None:
                deliver(weft.Batch.of(message))
                if message.data == b"poison":
                    raise ValueError("this program has a mistake")

            channel.on_message(stumbling)
        attacker.send(attacker.credential(), attacker.signed(Broadcast(attacker.peer, 1, 1, (b"poison",))))
        await eventually(lambda: len(of.strangers_heard) == len(of.channels))
        await of.talk_goes_on(10)
        assert not of.torn


@over_sockets
async def test_questions_for_what_is_not_there() -> None:
    async with stage() as of:
        attacker = await of.neighbour()
        attacker.send(Known((Have(12345, 1, 1 << 20, 0),)))
        attacker.send(*[Want(12345, 1, 4096)] * 1500)
        await of.talk_goes_on(50)
        assert of.lag_s < 0.5


@over_sockets
async def test_an_author_is_not_muted_by_neighbours_that_do_not_read() -> None:
    limits = Limits(queue_bytes_max=1 << 20, congested_bytes=64 << 10, stall_s=0.3)
    async with stage(2, limits=limits, signed=True) as of:
        deaf = [await of.neighbour() for _ in range(2)]
        for each in deaf:
            each.pause_reading()
        async with asyncio.timeout(3):
            for _ in range(240):
                for each in deaf:
                    each.send(Heartbeat())
                of.said[of.victim.peer] = await of.victim.broadcast(bytes(PART_BYTES))
