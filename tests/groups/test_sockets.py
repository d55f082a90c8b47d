"""Groups over real sockets, with a few peers on one machine."""

import asyncio
from pathlib import Path

import pytest

import broadloom
from broadloom.groups import (
    LAYER,
    CaughtUp,
    Group,
    GroupDiscovered,
    GroupNotFoundError,
    Groups,
    MemberOffline,
    MemberStatus,
    RetentionPolicy,
    payload_ids,
)
from tests.channel.joined import QUICK, connected_channels
from tests.groups.group_bus import QUICK_GROUPS
from tests.support import eventually

pytestmark = pytest.mark.usefixtures("no_leaks")


async def wait_for_group(groups: Groups, description: str) -> int:
    await eventually(lambda: any(each.description == description for each in groups.list_groups()))
    return next(each.id for each in groups.list_groups() if each.description == description)


async def texts(group: Group, count: int) -> list[str]:
    return [(await group.receive(20)).text for _ in range(count)]


async def test_three_members_hold_conversation() -> None:
    async with (
        connected_channels(3) as channels,
        Groups(channels[0], "Anna", settings=QUICK_GROUPS) as anna,
        Groups(channels[1], "Ben", settings=QUICK_GROUPS) as ben,
        Groups(channels[2], "Cleo", settings=QUICK_GROUPS) as cleo,
    ):
        club = await anna.create("Chess club")
        question = await club.send_text("Who plays white?")
        at_ben = await ben.join(await wait_for_group(ben, "Chess club"))
        assert await texts(at_ben, 1) == ["Who plays white?"]
        answer = await at_ben.send_text("I do", reply_to=question)
        at_cleo = await cleo.join(await wait_for_group(cleo, "Chess club"))
        assert await texts(at_cleo, 2) == ["Who plays white?", "I do"]
        await at_cleo.send_text("And I black", reply_to=answer)
        assert await texts(club, 2) == ["I do", "And I black"], "a program does not receive its own messages"
        for each in (club, at_ben, at_cleo):
            await eventually(lambda each=each: len(each.history()) == 3)  # type: ignore[misc]
            thread = [(depth, message.author_name, message.text) for depth, message in each.thread(question)]
            assert thread == [(0, "Anna", "Who plays white?"), (1, "Ben", "I do"), (2, "Cleo", "And I black")]
            await eventually(lambda each=each: list(each.members().values()) == [MemberStatus.ONLINE] * 3)  # type: ignore[misc]
            assert [member.name for member in each.members()] == ["Anna", "Ben", "Cleo"]
        await at_ben.leave()
        with pytest.raises(GroupNotFoundError):
            await at_ben.send_text("too late")
        await eventually(lambda: list(club.members().values()).count(MemberStatus.LEFT) == 1)
        assert [message async for message in at_ben], "unread messages can still be read"


async def test_returning_member_keeps_id_and_continues_sequence(tmp_path: Path) -> None:
    events: list[object] = []
    async with connected_channels(2) as (here, there), Groups(here, "Anna", settings=QUICK_GROUPS) as anna:
        club = await anna.create("club", retention=RetentionPolicy(messages_max=1000))
        async with Groups(there, "Ben", store=tmp_path / "ben.db", settings=QUICK_GROUPS) as ben:
            ben_id = ben.me.id
            at_ben = await ben.join(await wait_for_group(ben, "club"))
            first = await at_ben.send_text("one")
            assert first.sequence == 1
            await eventually(lambda: len(club.history()) == 1)
        await eventually(lambda: MemberStatus.OFFLINE in club.members().values())
        await there.leave()
        for number in range(20):
            await club.send_text(f"missed {number}")
        async with (
            broadloom.connect(here.name, tls=False, settings=QUICK) as again,
            Groups(again, "Ben", store=tmp_path / "ben.db", settings=QUICK_GROUPS) as ben,
        ):
            ben.on_event(events.append)
            assert ben.me.id == ben_id
            (at_ben,) = ben.joined.values()
            assert [each.text for each in at_ben.history()] == ["one"]
            assert await texts(at_ben, 20) == [f"missed {number}" for number in range(20)]
            second = await at_ben.send_text("two")
            assert second.sequence == 2
            await eventually(lambda: any(isinstance(event, CaughtUp) for event in events))
            await eventually(lambda: len(club.history()) == 22)
            await eventually(lambda: list(club.members().values()) == [MemberStatus.ONLINE] * 2)


async def test_crashed_member_is_offline() -> None:
    events: list[object] = []
    async with (
        connected_channels(3) as (one, two, three),
        Groups(one, "Anna", settings=QUICK_GROUPS) as anna,
        Groups(two, "Ben", settings=QUICK_GROUPS) as ben,
    ):
        anna.on_event(events.append)
        failed = Groups(three, "Cleo", settings=QUICK_GROUPS)
        club = await anna.create("club")
        await ben.join(await wait_for_group(ben, "club"))
        await failed.join(await wait_for_group(failed, "club"))
        await eventually(lambda: len(club.members()) == 3)
        three.abort()
        await eventually(lambda: any(isinstance(event, MemberOffline) for event in events))
        assert {member.name: status for member, status in club.members().items()}["Cleo"] is MemberStatus.OFFLINE
        assert [event async for event in failed.events()] == [], "events end with the channel"
        await failed.aclose()


async def test_groups_do_not_disturb_the_readers_of_the_channel() -> None:
    async with connected_channels(2) as (one, two):
        async with (
            Groups(one, "Anna", settings=QUICK_GROUPS) as anna,
            Groups(two, "Ben", settings=QUICK_GROUPS) as ben,
        ):
            club = await anna.create("club")
            await one.broadcast(b"BG but nonsense")
            await ben._runtime._layer.broadcast(b"BG but nonsense")
            await eventually(lambda: anna._participant.malformed_messages == 1)
            same = await ben.join(await wait_for_group(ben, "club"))
            await club.send_text("in the group")
            assert (await same.receive(20)).text == "in the group"
        await one.broadcast(b"after")
        assert [(await two.receive(20)).data for _ in range(2)] == [b"BG but nonsense", b"after"]
        assert one.unread_count == 0


async def test_group_discovered_is_emitted_for_new_group() -> None:
    async with (
        connected_channels(2) as (one, two),
        Groups(one, "Anna", settings=QUICK_GROUPS) as anna,
        Groups(two, "Ben", settings=QUICK_GROUPS) as ben,
    ):
        discovered = asyncio.ensure_future(anext(aiter(ben.events())))
        await asyncio.sleep(0)
        lobby = await anna.create("the lobby", well_known_name="lobby")
        event = await asyncio.wait_for(discovered, 20)
        assert isinstance(event, GroupDiscovered)
        assert event.group.description == "the lobby"
        ben.decline(event.group)
        same = await ben.create("whatever", well_known_name="lobby")
        assert same.id == lobby.id, "the same well-known name is the same group"
        await eventually(lambda: len(lobby.members()) == 2 == len(same.members()))
        await eventually(lambda: lobby.description == same.description)


async def test_declined_group_is_reported_again_in_next_session(tmp_path: Path) -> None:
    async with connected_channels(2) as (one, two), Groups(one, "Anna", settings=QUICK_GROUPS) as anna:
        club = await anna.create("club")
        async with Groups(two, "Ben", store=tmp_path / "ben.db", settings=QUICK_GROUPS) as ben:
            ben.decline(await wait_for_group(ben, "club"))
            assert ben.list_groups()[0].is_declined
        async with Groups(two, "Ben", store=tmp_path / "ben.db", settings=QUICK_GROUPS) as ben:
            events: list[object] = []
            ben.on_event(events.append)
            await eventually(lambda: events)
            assert [event.group.id for event in events if isinstance(event, GroupDiscovered)] == [club.id]
            assert not ben.list_groups()[0].is_declined


async def test_payload_ids_identify_group_messages() -> None:
    async with connected_channels(2) as (one, two), Groups(one, "Anna", settings=QUICK_GROUPS) as anna:
        payloads: list[bytes] = []
        two.layer(LAYER, lambda batch: payloads.extend(batch.data))
        club = await anna.create("club")
        first = await club.send_text("one")
        await club.send_text("two", reply_to=first)
        found = await eventually(
            lambda: posts if len(posts := list(filter(None, map(payload_ids, payloads)))) == 2 else None
        )
        assert [each.message_id.sequence for each in found] == [1, 2]
        assert found[1].parent_id == found[0].message_id
        assert {each.group_id for each in found} == {club.id}
    assert payload_ids(b"BGxx") is None
    assert payload_ids(b"plain") is None
