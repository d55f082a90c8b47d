"""Groups over real sockets: the same code as in the simulator, a few peers, one machine."""

import asyncio
from pathlib import Path

import pytest

import weft
from tests.channel.joined import QUICK, joined
from tests.net.lines import play, until
from weft.groups import (
    CaughtUp,
    Group,
    GroupOffered,
    Groups,
    Here,
    Keep,
    MemberGone,
    NoSuchGroup,
    Settings,
    groups,
    identities,
)

SOON = Settings(answer_s=0.2, hold_s=0.4, presence_s=0.5, suspect_s=0.4, ask_after_s=0.2)


async def offered(here: Groups, description: str) -> int:
    await until(lambda: any(each.description == description for each in here.known()))
    return next(each.id for each in here.known() if each.description == description)


async def texts(group: Group, count: int) -> list[str]:
    return [(await group.receive(20)).text for _ in range(count)]


def test_a_conversation() -> None:
    async def main() -> None:
        async with (
            joined(3) as channels,
            channels[0].groups("Anna", settings=SOON) as anna,
            channels[1].groups("Ben", settings=SOON) as ben,
            channels[2].groups("Cleo", settings=SOON) as cleo,
        ):
            club = await anna.create("Chess club")
            question = await club.send_text("Who plays white?")
            at_ben = await ben.join(await offered(ben, "Chess club"))
            assert await texts(at_ben, 1) == ["Who plays white?"]
            answer = await at_ben.send_text("I do", reply_to=question)
            at_cleo = await cleo.join(await offered(cleo, "Chess club"))
            assert await texts(at_cleo, 2) == ["Who plays white?", "I do"]
            await at_cleo.send_text("And I black", reply_to=answer)
            assert await texts(club, 3) == ["Who plays white?", "I do", "And I black"]
            for each in (club, at_ben, at_cleo):
                await until(lambda each=each: len(each.history()) == 3)  # type: ignore[misc]
                shown = [(line.depth, line.message.name, line.message.text) for line in each.thread(question)]
                assert shown == [(0, "Anna", "Who plays white?"), (1, "Ben", "I do"), (2, "Cleo", "And I black")]
                await until(lambda each=each: list(each.members().values()) == [Here.PRESENT] * 3)  # type: ignore[misc]
                assert [who.name for who in each.members()] == ["Anna", "Ben", "Cleo"]
            await at_ben.leave()
            with pytest.raises(NoSuchGroup):
                await at_ben.send_text("too late")
            await until(lambda: list(club.members().values()).count(Here.LEFT) == 1)
            assert [message async for message in at_ben], "what was unread can be read to its end"

    play(main)


def test_a_member_returns_under_its_name_and_goes_on_with_its_numbers(tmp_path: Path) -> None:
    async def main() -> None:
        events: list[object] = []
        async with joined(2) as (here, there), groups(here, "Anna", settings=SOON) as anna:
            club = await anna.create("club", keep=Keep(messages=1000))
            async with groups(there, "Ben", store=tmp_path / "ben.db", settings=SOON) as ben:
                ben_id = ben.me.id
                at_ben = await ben.join(await offered(ben, "club"))
                first = await at_ben.send_text("one")
                assert first.sequence == 1
                await until(lambda: len(club.history()) == 1)
            await until(lambda: Here.GONE in club.members().values())
            await there.leave()
            for number in range(20):
                await club.send_text(f"missed {number}")
            async with (
                weft.connect(here.name, plain=True, settings=QUICK) as again,
                groups(again, "Ben", store=tmp_path / "ben.db", settings=SOON) as ben,
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
                await until(lambda: list(club.members().values()) == [Here.PRESENT] * 2)

    play(main)


def test_one_that_dies_without_a_word_is_shown_as_gone() -> None:
    async def main() -> None:
        events: list[object] = []
        async with (
            joined(3) as (one, two, three),
            groups(one, "Anna", settings=SOON) as anna,
            groups(two, "Ben", settings=SOON) as ben,
        ):
            anna.on_event(events.append)
            dead = groups(three, "Cleo", settings=SOON)
            club = await anna.create("club")
            await ben.join(await offered(ben, "club"))
            await dead.join(await offered(dead, "club"))
            await until(lambda: len(club.members()) == 3)
            three.vanish()
            await until(lambda: any(isinstance(event, MemberGone) for event in events))
            assert {who.name: here for who, here in club.members().items()}["Cleo"] is Here.GONE
            assert [event async for event in dead.events()] == [], "its channel is left, so nothing comes any more"
            await dead.close()

    play(main)


def test_other_messages_of_the_channel() -> None:
    async def main() -> None:
        async with joined(2) as (one, two):
            seen: list[bytes] = []
            async with (
                groups(one, "Anna", settings=SOON, on_other=lambda message: seen.append(message.data)) as anna,
                groups(two, "Ben", settings=SOON) as ben,
            ):
                await one.broadcast(b"plain")
                await two.broadcast(b"Gw but nonsense")
                await two.broadcast(b"plain too")
                await until(lambda: ben.medium.others == 1 and seen and anna.participant.malformed == 1)
                assert seen == [b"plain too"]
            await one.broadcast(b"after")
            while (await two.receive(20)).data != b"after":
                pass  # the channel is read again as before, with what others say of groups

    play(main)


def test_events_and_invitations() -> None:
    async def main() -> None:
        async with (
            joined(2) as (one, two),
            groups(one, "Anna", settings=SOON) as anna,
            groups(two, "Ben", settings=SOON) as ben,
        ):
            offers = asyncio.ensure_future(anext(aiter(ben.events())))
            await asyncio.sleep(0)
            lobby = await anna.create("the lobby", identity="lobby")
            event = await asyncio.wait_for(offers, 20)
            assert isinstance(event, GroupOffered)
            assert event.group.description == "the lobby"
            ben.reject(event.group)
            same = await ben.create("whatever", identity="lobby")
            assert same.id == lobby.id, "who creates it by the same text finds the same group"
            await until(lambda: len(lobby.members()) == 2 == len(same.members()))
            await until(lambda: lobby.description == same.description)

    play(main)


def test_what_was_known_and_not_joined_is_offered_at_the_next_arrival(tmp_path: Path) -> None:
    async def main() -> None:
        async with joined(2) as (one, two), groups(one, "Anna", settings=SOON) as anna:
            club = await anna.create("club")
            async with groups(two, "Ben", store=tmp_path / "ben.db", settings=SOON) as ben:
                ben.reject(await offered(ben, "club"))
                assert ben.known()[0].rejected
            async with groups(two, "Ben", store=tmp_path / "ben.db", settings=SOON) as ben:
                events: list[object] = []
                ben.on_event(events.append)
                await until(lambda: events)
                assert [event.group.id for event in events if isinstance(event, GroupOffered)] == [club.id]
                assert not ben.known()[0].rejected

    play(main)


def test_what_a_tape_may_know() -> None:
    async def main() -> None:
        async with joined(2) as (one, two), groups(one, "Anna", settings=SOON) as anna:
            club = await anna.create("club")
            first = await club.send_text("one")
            await club.send_text("two", reply_to=first)
            found = []
            async for message in two:
                told = identities(message.data)
                if told is not None:
                    found.append(told)
                    if told.parent is not None:
                        break
            assert [each.message.sequence for each in found] == [1, 2]
            assert found[1].parent == found[0].message
            assert {each.group for each in found} == {club.id}
        assert identities(b"Gwxx") is None
        assert identities(b"plain") is None

    play(main)
