"""A member of a group on a channel with tickets that speaks in another's name, or asks too much."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

import broadloom
from broadloom.groups import LAYER, Group, GroupPublisher, Groups, proofs
from broadloom.groups.codec import encode
from broadloom.groups.history_server import COMPARED_AUTHORS_BURST, COMPARED_AUTHORS_PER_S
from broadloom.groups.message_fields import AuthorIntervals, pack_posts
from broadloom.groups.message_set import MessageSet
from broadloom.groups.messages import HistoryPage, HistoryRequest, PostMessage
from broadloom.groups.model import Post
from broadloom.protocol.identity import Role
from broadloom.security import Authority
from tests.attack.harness import unique_name
from tests.channel.joined import QUICK
from tests.groups.group_bus import QUICK_GROUPS, GroupBus
from tests.support import TIMEOUT_S, eventually


class Club(NamedTuple):
    anna: Group
    ben: Group
    mallory: broadloom.Channel
    """A member that sends what it likes."""
    name: str
    owner: Authority


@asynccontextmanager
async def ticketed_club() -> AsyncIterator[Club]:
    owner, name, tomorrow = Authority.generate(), unique_name(), datetime.now(UTC) + timedelta(days=1)
    tickets = [owner.issue_ticket(each, Role.PRODUCER, tomorrow) for each in ("anna", "ben", "mallory")]
    async with (
        broadloom.connect(name, ticket=tickets[0], settings=QUICK) as one,
        broadloom.connect(name, ticket=tickets[1], settings=QUICK) as two,
        broadloom.connect(name, ticket=tickets[2], settings=QUICK) as mallory,
        Groups(one, "Anna", settings=QUICK_GROUPS) as anna,
        Groups(two, "Ben", settings=QUICK_GROUPS) as ben,
    ):
        club = await anna.create("Chess club")
        at_ben = await ben.join(await ben.find("Chess club", TIMEOUT_S))
        yield Club(club, at_ben, mallory, name, owner)


def page(group: Group, *posts: Post) -> bytes:
    contents = tuple(AuthorIntervals(each.author, ((each.sequence, each.sequence),)) for each in posts)
    names = tuple((each.author, "Anna") for each in posts)
    return encode(HistoryPage(group.id, 0, 0, 0, True, contents, (), names, pack_posts(posts)))


async def test_member_cannot_speak_in_anothers_name_or_take_her_numbers() -> None:
    async with ticketed_club() as club:
        first = await club.anna.send_text("one")
        assert (await club.ben.receive(TIMEOUT_S)).verified_name == "anna"
        signer = club.mallory._post_signer
        assert signer is not None
        now_ms = int(1000 * datetime.now(UTC).timestamp())
        forged = [Post(first.author, sequence, None, now_ms, b"I resign") for sequence in range(2, 6)]
        self_signed = [proofs.signed(signer, club.ben.id, 1, each) for each in forged]
        for payload in (page(club.ben, *forged), page(club.ben, *self_signed)):
            await club.mallory.layer(LAYER).broadcast(payload)
        for each in (*forged, *self_signed):
            await club.mallory.layer(LAYER).broadcast(encode(PostMessage(club.ben.id, "Anna", each)))
        forgeries = len(forged) * 4
        await eventually(lambda: club.ben._participant.forged_messages >= forgeries)
        for text in ("two", "three", "four"):
            await club.anna.send_text(text)
        received = [await club.ben.receive(TIMEOUT_S) for _ in range(3)]
        assert [(each.text, each.verified_name) for each in received] == [
            ("two", "anna"),
            ("three", "anna"),
            ("four", "anna"),
        ]


async def test_history_served_by_another_member_is_proven() -> None:
    async with ticketed_club() as club:
        await club.anna.send_text("one")
        await club.ben.receive(TIMEOUT_S)
        await club.anna._groups.aclose()  # only Ben can serve it
        ticket = club.owner.issue_ticket("cleo", Role.PRODUCER, datetime.now(UTC) + timedelta(days=1))
        async with (
            broadloom.connect(club.name, ticket=ticket, settings=QUICK) as channel,
            Groups(channel, "Cleo", settings=QUICK_GROUPS) as groups,
        ):
            group = await groups.join(await groups.find("Chess club", TIMEOUT_S))
            message = await group.receive(TIMEOUT_S)
            assert (message.text, message.verified_name, message.is_unproven) == ("one", "anna", False)


async def test_member_cannot_take_the_text_of_a_proven_post_away() -> None:
    async with ticketed_club() as club:
        first = await club.anna.send_text("one")
        assert (await club.ben.receive(TIMEOUT_S)).text == "one"
        signer, participant = club.anna._groups.channel._post_signer, club.anna._groups._participant
        assert signer is not None
        now_ms = int(1000 * datetime.now(UTC).timestamp())
        post = Post(first.author, 2, None, now_ms, b"two")
        post = proofs.signed(signer, club.anna.id, participant.nonce, post)
        forged_before = club.ben._groups._participant.forged_messages
        await club.mallory.layer(LAYER).broadcast(page(club.ben, proofs.stripped(post)))
        await eventually(lambda: club.ben._groups._participant.forged_messages > forged_before)
        await club.mallory.layer(LAYER).broadcast(page(club.ben, post))
        message = await club.ben.receive(TIMEOUT_S)
        assert (message.text, message.verified_name, message.is_stripped) == ("two", "anna", False)


async def test_post_without_proof_is_marked() -> None:
    async with ticketed_club() as club:
        publisher = GroupPublisher(club.ben.id, "Anna")
        post = Post(publisher.id, 1, None, 0, b"who wrote this?")
        await club.mallory.layer(LAYER).broadcast(page(club.ben, post))
        message = await club.ben.receive(TIMEOUT_S)
        assert (message.author_name, message.verified_name, message.is_unproven) == ("Anna", "", True)
        assert message.author_note == "(unproven)"
        assert club.ben.history()[0].is_unproven


def test_short_requests_for_history_cost_a_bounded_number_of_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing a request of 28 bytes with a group of many authors takes hundreds of milliseconds."""
    authors = 5_000
    bus = GroupBus(1)
    victim = bus.add("victim")
    victim.participant.create("a group", group=7)
    bus.run(5)
    posts = [Post(100 + author, 1, None, 0, b"x") for author in range(authors)]
    victim.participant.conversations[7].receive(posts, {})
    compared: list[int] = []
    minus = MessageSet.minus

    def count(held: MessageSet, *others: MessageSet) -> MessageSet:
        compared.append(len(held))
        return minus(held, *others)

    monkeypatch.setattr(MessageSet, "minus", count)
    request = encode(HistoryRequest(7, 1, 0, ()))
    assert len(request) == 28
    for number in range(500):
        victim.participant.on_message(1000 + number, request)
    assert sum(compared) == 0, "nothing is compared at once"
    bus.run(10)
    assert sum(compared) <= COMPARED_AUTHORS_BURST + 10 * COMPARED_AUTHORS_PER_S + authors
