"""Groups over real sockets: the same code as in the simulator, a few peers, one machine."""

import asyncio
from pathlib import Path

import pytest

import broadloom
from broadloom.groups import (
    CaughtUp,
    Group,
    GroupDiscovered,
    GroupNotFoundError,
    Groups,
    GroupSettings,
    MemberOffline,
    MemberStatus,
    RetentionPolicy,
    groups,
    payload_ids,
)
from tests.channel.joined import QUICK, connected_channels
from tests.transport.connections import run_test, until

QUICK_GROUPS = GroupSettings(
    reply_window_s=0.2, page_timeout_s=0.4, presence_interval_s=0.5, suspicion_timeout_s=0.4, parent_request_delay_s=0.2
)


async def wait_for_group(here: Groups, description: str) -> int:
    await until(lambda: any(each.description == description for each in here.list_groups()))
    return next(each.id for each in here.list_groups() if each.description == description)


async def texts(group: Group, count: int) -> list[str]:
    return [(await group.receive(20)).text for _ in range(count)]


def test_a_conversation() -> None:
    async def main() -> None:
        async with (
            connected_channels(3) as channels,
            channels[0].groups("Anna", settings=QUICK_GROUPS) as anna,
            channels[1].groups("Ben", settings=QUICK_GROUPS) as ben,
            channels[2].groups("Cleo", settings=QUICK_GROUPS) as cleo,
        ):
            club = await anna.create("Chess club")
            question = await club.send_text("Who plays white?")
            at_ben = await ben.join(await wait_for_group(ben, "Chess club"))
            assert await texts(at_ben, 1) == ["Who plays white?"]
            answer = await at_ben.send_text("I do", reply_to=question)
            at_cleo = await cleo.join(await wait_for_group(cleo, "Chess club"))
            assert await texts(at_cleo, 2) == ["Who plays white?", "I do"]
            await at_cleo.send_text("And I black", reply_to=answer)
            assert await texts(club, 3) == ["Who plays white?", "I do", "And I black"]
            for each in (club, at_ben, at_cleo):
                await until(lambda each=each: len(each.history()) == 3)  # type: ignore[misc]
                shown = [(line.depth, line.message.author_name, line.message.text) for line in each.thread(question)]
                assert shown == [(0, "Anna", "Who plays white?"), (1, "Ben", "I do"), (2, "Cleo", "And I black")]
                await until(lambda each=each: list(each.members().values()) == [MemberStatus.ONLINE] * 3)  # type: ignore[misc]
                assert [who.name for who in each.members()] == ["Anna", "Ben", "Cleo"]
            await at_ben.leave()
            with pytest.raises(GroupNotFoundError):
                await at_ben.send_text("too late")
            await until(lambda: list(club.members().values()).count(MemberStatus.LEFT) == 1)
            assert [message async for message in at_ben], "what was unread can be read to its end"

    run_test(main)


def test_a_member_returns_under_its_name_and_goes_on_with_its_numbers(tmp_path: Path) -> None:
    async def main() -> None:
        events: list[object] = []
        async with connected_channels(2) as (here, there), groups(here, "Anna", settings=QUICK_GROUPS) as anna:
            club = await anna.create("club", retention=RetentionPolicy(messages_max=1000))
            async with groups(there, "Ben", store=tmp_path / "ben.db", settings=QUICK_GROUPS) as ben:
                ben_id = ben.me.id
                at_ben = await ben.join(await wait_for_group(ben, "club"))
                first = await at_ben.send_text("one")
                assert first.sequence == 1
                await until(lambda: len(club.history()) == 1)
            await until(lambda: MemberStatus.OFFLINE in club.members().values())
            await there.leave()
            for number in range(20):
                await club.send_text(f"missed {number}")
            async with (
                broadloom.connect(here.name, tls=False, settings=QUICK) as again,
                groups(again, "Ben", store=tmp_path / "ben.db", settings=QUICK_GROUPS) as ben,
            ):
                ben.on_event(events.append)
                assert ben.me.id == ben_id
                (at_ben,) = ben.joined.values()
                assert [each.text for each in at_ben.history()] == ["one"]
                assert await texts(at_ben, 20) == [f"missed {number}" for number in range(20)]
                second = await at_ben.send_text("two")
                assert second.sequence == 2
                await until(lambda: any(isinstance(event, CaughtUp) for event in events))
                await until(lambda: len(club.history()) == 22)
                await until(lambda: list(club.members().values()) == [MemberStatus.ONLINE] * 2)

    run_test(main)


def test_one_that_dies_without_a_word_is_shown_as_gone() -> None:
    async def main() -> None:
        events: list[object] = []
        async with (
            connected_channels(3) as (one, two, three),
            groups(one, "Anna", settings=QUICK_GROUPS) as anna,
            groups(two, "Ben", settings=QUICK_GROUPS) as ben,
        ):
            anna.on_event(events.append)
            dead = groups(three, "Cleo", settings=QUICK_GROUPS)
            club = await anna.create("club")
            await ben.join(await wait_for_group(ben, "club"))
            await dead.join(await wait_for_group(dead, "club"))
            await until(lambda: len(club.members()) == 3)
            three.abort()
            await until(lambda: any(isinstance(event, MemberOffline) for event in events))
            assert {who.name: here for who, here in club.members().items()}["Cleo"] is MemberStatus.OFFLINE
            assert [event async for event in dead.events()] == [], "its channel is left, so nothing comes any more"
            await dead.aclose()

    run_test(main)


def test_other_messages_of_the_channel() -> None:
    async def main() -> None:
        async with connected_channels(2) as (one, two):
            seen: list[bytes] = []
            async with (
                groups(
                    one, "Anna", settings=QUICK_GROUPS, on_unhandled=lambda message: seen.append(message.data)
                ) as anna,
                groups(two, "Ben", settings=QUICK_GROUPS) as ben,
            ):
                await one.broadcast(b"plain")
                await two.broadcast(b"Gw but nonsense")
                await two.broadcast(b"plain too")
                await until(
                    lambda: ben._runtime.unhandled_count == 1 and seen and anna._participant.malformed_messages == 1
                )
                assert seen == [b"plain too"]
            await one.broadcast(b"after")
            while (await two.receive(20)).data != b"after":
                pass  # the channel is read again as before, with what others say of groups

    run_test(main)


def test_events_and_invitations() -> None:
    async def main() -> None:
        async with (
            connected_channels(2) as (one, two),
            groups(one, "Anna", settings=QUICK_GROUPS) as anna,
            groups(two, "Ben", settings=QUICK_GROUPS) as ben,
        ):
            offers = asyncio.ensure_future(anext(aiter(ben.events())))
            await asyncio.sleep(0)
            lobby = await anna.create("the lobby", well_known_name="lobby")
            event = await asyncio.wait_for(offers, 20)
            assert isinstance(event, GroupDiscovered)
            assert event.group.description == "the lobby"
            ben.decline(event.group)
            same = await ben.create("whatever", well_known_name="lobby")
            assert same.id == lobby.id, "who creates it by the same text finds the same group"
            await until(lambda: len(lobby.members()) == 2 == len(same.members()))
            await until(lambda: lobby.description == same.description)

    run_test(main)


def test_what_was_known_and_not_joined_is_offered_at_the_next_arrival(tmp_path: Path) -> None:
    async def main() -> None:
        async with connected_channels(2) as (one, two), groups(one, "Anna", settings=QUICK_GROUPS) as anna:
            club = await anna.create("club")
            async with groups(two, "Ben", store=tmp_path / "ben.db", settings=QUICK_GROUPS) as ben:
                ben.decline(await wait_for_group(ben, "club"))
                assert ben.list_groups()[0].is_declined
            async with groups(two, "Ben", store=tmp_path / "ben.db", settings=QUICK_GROUPS) as ben:
                events: list[object] = []
                ben.on_event(events.append)
                await until(lambda: events)
                assert [event.group.id for event in events if isinstance(event, GroupDiscovered)] == [club.id]
                assert not ben.list_groups()[0].is_declined

    run_test(main)


def test_what_a_tape_may_know() -> None:
    async def main() -> None:
        async with connected_channels(2) as (one, two), groups(one, "Anna", settings=QUICK_GROUPS) as anna:
            club = await anna.create("club")
            first = await club.send_text("one")
            await club.send_text("two", reply_to=first)
            found = []
            async for message in two:
                told = payload_ids(message.data)
                if told is not None:
                    found.append(told)
                    if told.parent_id is not None:
                        break
            assert [each.message_id.sequence for each in found] == [1, 2]
            assert found[1].parent_id == found[0].message_id
            assert {each.group_id for each in found} == {club.id}
        assert payload_ids(b"Gwxx") is None
        assert payload_ids(b"plain") is None

    run_test(main)
