"""Finding a group, listening, publishing without joining, and verified names, over real sockets."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import broadloom
from broadloom.groups import LAYER, GroupNotFoundError, GroupPublisher, Groups, MemberStatus
from tests.channel.joined import QUICK, connected_channels, unique_name
from tests.groups.group_bus import QUICK_GROUPS
from tests.groups.test_sockets import texts
from tests.support import eventually

pytestmark = pytest.mark.usefixtures("no_leaks")


async def test_listener_receives_messages_without_membership() -> None:
    """A listener has the history and live messages, is announced to no member, and cannot send before it joins."""
    async with (
        connected_channels(2) as (here, there),
        Groups(here, "Anna", settings=QUICK_GROUPS) as anna,
        Groups(there, "Ben", settings=QUICK_GROUPS) as ben,
    ):
        club = await anna.create("Chess club")
        await club.send_text("before")
        assert await ben.wait_until_synced(20)
        heard = await ben.listen(await ben.find("chess club"))
        assert await texts(heard, 1) == ["before"]
        await club.send_text("live")
        assert await texts(heard, 1) == ["live"]
        assert (ben.joined, ben.stored_count(club.id), heard.info.is_joined) == ({}, 2, False)
        with pytest.raises(GroupNotFoundError, match="join it before you send"):
            await heard.send_text("too early")
        assert [member.name for member in club.members()] == ["Anna"]
        joined_now = await ben.join(club.id)
        assert joined_now is heard
        await heard.send_text("now")
        await eventually(lambda: len(club.history()) == 3)
        assert [member.name for member in club.members()] == ["Anna", "Ben"]
        await heard.leave()
        again = await ben.listen(club.id)
        await again.leave()
        await eventually(lambda: list(club.members().values()) == [MemberStatus.ONLINE, MemberStatus.LEFT])


async def test_find_returns_group_by_description_or_well_known_name() -> None:
    async with (
        connected_channels(2) as (here, there),
        Groups(here, "Anna", settings=QUICK_GROUPS) as anna,
        Groups(there, "Ben", settings=QUICK_GROUPS) as ben,
    ):
        looking = asyncio.create_task(ben.find("prices", 20))
        await eventually(lambda: bool(here.status().neighbors))
        club = await anna.create("Prices of today", well_known_name="prices")
        assert (await looking).id == club.id
        assert (await ben.find(f"{club.id:016x}"[:6])).id == club.id
        with pytest.raises(GroupNotFoundError, match=r"no group matches 'Prizes'; known groups: .* 'Prices of today'"):
            await ben.find("Prizes", 0.01)
        await anna.create("prices of TODAY")
        await eventually(lambda: len(ben.list_groups()) == 2)
        with pytest.raises(GroupNotFoundError, match="'PRICES OF TODAY' matches several groups"):
            await ben.find("PRICES OF TODAY")
        assert (await ben.find("Prices of today")).id == club.id


async def test_publisher_posts_without_membership() -> None:
    async with connected_channels(2) as (here, there), Groups(here, "Anna", settings=QUICK_GROUPS) as anna:
        club = await anna.create("Chess club")
        question = await club.send_text("Who plays white?")
        publisher = GroupPublisher(club.id, "feed")
        for text, parent in ((b"I do", question.id), (b"x" * 200_000, None)):
            await there.layer(LAYER).broadcast(publisher.encode_post(text, parent))
        await eventually(lambda: len(club.history()) == 3)
        posts = [(each.author_name, each.sequence, each.parent_id, len(each.data)) for each in club.history()[1:]]
        assert posts == [("feed", 1, question.id, 4), ("feed", 2, None, 200_000)]
        assert [member.name for member in club.members()] == ["Anna"]
        with pytest.raises(ValueError, match="at most"):
            publisher.encode_post(bytes(600_000))


async def test_verified_name_comes_from_ticket_of_sender() -> None:
    """Messages carry the name on their author's ticket, whatever name it chose, live and from history."""
    owner, tomorrow = broadloom.Authority.generate(), datetime.now(UTC) + timedelta(days=1)
    tickets = [owner.issue_ticket(name, broadloom.Role.PRODUCER, tomorrow) for name in ("anna", "mallory", "cleo")]
    name = unique_name()
    async with (
        broadloom.connect(name, ticket=tickets[0], settings=QUICK) as one,
        broadloom.connect(name, ticket=tickets[1], settings=QUICK) as two,
        Groups(one, "anna", settings=QUICK_GROUPS) as anna,
        Groups(two, "anna", settings=QUICK_GROUPS) as mallory,
    ):
        club = await anna.create("Chess club")
        await club.send_text("I am")
        impostor = await mallory.join(await mallory.find("Chess club"))
        assert [await texts(impostor, 1), impostor.history()[0].verified_name] == [["I am"], "anna"]
        await impostor.send_text("No, I")
        await eventually(lambda: len(club.history()) == 2)
        assert [(each.author_name, each.verified_name) for each in club.history()] == [
            ("anna", "anna"),
            ("anna", "mallory"),
        ]
        async with (
            broadloom.connect(name, ticket=tickets[2], settings=QUICK) as three,
            Groups(three, "cleo", settings=QUICK_GROUPS) as cleo,
        ):
            at_cleo = await cleo.join(await cleo.find("Chess club"))
            late = [await at_cleo.receive(20), await at_cleo.receive(20)]
            assert [(each.author_name, each.verified_name) for each in late] == [("anna", "anna"), ("anna", "mallory")]
            await club.send_text("Welcome")
            assert (await at_cleo.receive(20)).verified_name == "anna"


async def test_channel_with_several_local_peers_is_one_member() -> None:
    name = unique_name()
    async with (
        broadloom.connect(name, tls=False, settings=QUICK, local_peers=3) as three,
        broadloom.connect(name, tls=False, settings=QUICK) as one,
        Groups(three, "Anna", settings=QUICK_GROUPS) as anna,
        Groups(one, "Ben", settings=QUICK_GROUPS) as ben,
    ):
        club = await anna.create("Chess club")
        question = await club.send_text("Who plays white?")
        at_ben = await ben.join(await ben.find("Chess club", 20))
        assert await texts(at_ben, 1) == ["Who plays white?"]
        await at_ben.send_text("I do", reply_to=question)
        assert await texts(club, 1) == ["I do"]
        assert [member.name for member in at_ben.members()] == ["Anna", "Ben"]
