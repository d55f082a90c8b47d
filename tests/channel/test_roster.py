"""`channel.members`, its events, and names: chosen ones and those on tickets."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import broadloom
import broadloom.sync
from broadloom import Channel, LossCause, MemberJoined, MemberLeft, MemberLost, NotConnectedError, Role
from broadloom.security import Authority
from tests.channel.joined import QUICK, connected_channels, unique_name
from tests.support import eventually
from tests.transport.connections import each_loop

MODES = [{"tls": False}, {}, {"key": "a key"}, {"signed": True}]


def names(channel: Channel) -> list[str]:
    return sorted(member.name for member in channel.members())


@each_loop
@pytest.mark.parametrize("options", MODES, ids=["plain", "TLS", "key", "signed"])
async def test_members_are_listed_with_the_names_that_they_chose(options: dict[str, Any]) -> None:
    channel = unique_name()
    async with (
        broadloom.connect(channel, name="ann", settings=QUICK, **options) as ann,
        broadloom.connect(channel, name="bob", settings=QUICK, **options) as bob,
    ):
        assert [member.peer_id for member in await bob.wait_for_roster(20)] == sorted((ann.peer_id, bob.peer_id))
        await eventually(lambda: names(ann) == ["ann", "bob"])
        member = ann.member(bob.peer_id)
        assert member is not None
        assert (member.name, member.role, member.is_proven, member.ticket_serial) == ("bob", None, False, "")
        assert str(member.address) == bob.status().address
        assert isinstance(member.peer_id, broadloom.PeerId)
        assert ann.member(broadloom.PeerId(1)) is None


async def test_name_and_role_on_a_ticket_are_proven() -> None:
    channel = unique_name()
    authority, end = Authority.generate(), datetime.now(UTC) + timedelta(days=1)
    tickets = [authority.issue_ticket("ann", Role.PRODUCER, end), authority.issue_ticket("bob", Role.CONSUMER, end)]
    async with (
        broadloom.connect(channel, ticket=tickets[0], settings=QUICK) as ann,
        broadloom.connect(channel, ticket=tickets[1], settings=QUICK) as bob,
    ):
        await eventually(lambda: names(ann) == names(bob) == ["ann", "bob"])
        member = ann.member(bob.peer_id)
        assert member is not None
        assert (member.role, member.is_proven) == (Role.CONSUMER, True)
        own = bob.identity(bob.peer_id)
        assert own is not None
        assert member.ticket_serial == own.ticket_serial != ""
        assert all(each.is_proven for each in bob.members())


async def test_events_report_members_that_join_leave_and_are_lost() -> None:
    name = unique_name()
    async with connected_channels(2, name=name) as (ann, bob):
        events: list[tuple[type, int]] = []
        causes: list[LossCause] = []

        def on_event(event: broadloom.ChannelEvent) -> None:
            if isinstance(event, MemberJoined | MemberLeft | MemberLost):
                events.append((type(event), event.member.peer_id))
            if isinstance(event, MemberLost):
                causes.append(event.cause)

        ann.on_event(on_event)
        await eventually(lambda: len(ann.members()) == 2)
        events.clear()
        async with broadloom.connect(name, tls=False, settings=QUICK) as guest:
            await eventually(lambda: events == [(MemberJoined, guest.peer_id)])
        await eventually(lambda: events[1:] == [(MemberLeft, guest.peer_id)])
        bob.abort()
        await eventually(lambda: events[2:] == [(MemberLost, bob.peer_id)])
        assert causes == [LossCause.DEAD]
        assert [member.peer_id for member in ann.members()] == [ann.peer_id]


async def test_further_peers_of_a_program_are_not_members() -> None:
    name = unique_name()
    async with connected_channels(1, name=name) as (alone,):
        joined: list[MemberJoined] = []
        alone.on_event(lambda event: joined.append(event) if isinstance(event, MemberJoined) else None)
        async with broadloom.connect(name, tls=False, settings=QUICK, local_peers=3) as several:
            await eventually(lambda: len(alone._node.peer.roster.members()) == 4)
            expected = sorted((alone.peer_id, several.peer_id))
            assert [member.peer_id for member in alone.members()] == expected
            await eventually(lambda: [member.peer_id for member in several.members()] == expected)
            assert [event.member.peer_id for event in joined] == [several.peer_id]


async def test_roster_tells_which_layers_a_member_receives() -> None:
    async with connected_channels(2) as (ann, bob):
        layer = bob.layer("xY", lambda _batch: None)

        def layers() -> tuple[str, ...] | None:
            member = ann.member(bob.peer_id)
            return member.layers if member is not None else None

        await eventually(lambda: layers() == ("xY",))
        layer.close()
        await eventually(lambda: layers() == ())


async def test_wait_for_roster_ends_with_the_channel() -> None:
    async with connected_channels(1) as (channel,):
        assert [member.peer_id for member in await channel.wait_for_roster(1)] == [channel.peer_id]
        channel._node.peer.roster.sync.is_complete = False
        with pytest.raises(TimeoutError, match="the roster is not complete after"):
            await channel.wait_for_roster(0.01)
        waiting = asyncio.ensure_future(channel.wait_for_roster())
        await asyncio.sleep(0)
        channel.abort()
        with pytest.raises(NotConnectedError):
            await waiting


def test_synchronous_channel_has_the_roster() -> None:
    name = unique_name()
    with (
        broadloom.sync.connect(name, name="ann", tls=False, settings=QUICK) as ann,
        broadloom.sync.connect(name, name="bob", tls=False, settings=QUICK) as bob,
    ):
        assert sorted(member.name for member in bob.wait_for_roster(20)) == ["ann", "bob"]
        member = bob.member(ann.peer_id)
        assert member is not None
        assert member.as_dict()["peer_id"] == str(ann.peer_id)
