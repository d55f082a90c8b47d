"""A member of a group on a channel with tickets that speaks in another's name, or asks too much."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

import broadloom
from broadloom.groups import LAYER, Group, GroupPublisher, Groups, message_fields, proofs
from broadloom.groups.codec import encode
from broadloom.groups.history_server import COMPARED_AUTHORS_BURST, COMPARED_AUTHORS_PER_S
from broadloom.groups.message_fields import AuthorIntervals, pack_posts
from broadloom.groups.message_set import MessageSet
from broadloom.groups.messages import HistoryPage, HistoryRequest, PostMessage
from broadloom.groups.model import Post
from broadloom.groups.page_queue import FORGER_IGNORED_S, VERIFICATIONS_BURST, VERIFICATIONS_PER_S
from broadloom.groups.settings import PAGE_PROOFS_MAX
from broadloom.protocol.identity import Role
from broadloom.security import Authority
from broadloom.wire import xdr
from tests.attack.harness import unique_name
from tests.channel.joined import QUICK
from tests.groups.group_bus import QUICK_GROUPS, BusMember, GroupBus
from tests.groups.sim_post_signer import FOREIGN, SimPostSigner, ticketed_bus
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


@pytest.mark.parametrize("is_signed", [False, True])
async def test_member_cannot_speak_in_anothers_name_or_take_her_numbers(is_signed: bool) -> None:
    async with ticketed_club() as club:
        first = await club.anna.send_text("one")
        assert (await club.ben.receive(TIMEOUT_S)).verified_name == "anna"
        signer = club.mallory._post_signer
        assert signer is not None
        now_ms = int(1000 * datetime.now(UTC).timestamp())
        forged = [Post(first.author, sequence, None, now_ms, b"I resign") for sequence in range(2, 6)]
        if is_signed:
            forged = [proofs.signed(signer, club.ben.id, 1, each) for each in forged]
        await club.mallory.layer(LAYER).broadcast(page(club.ben, *forged))
        for each in forged:
            await club.mallory.layer(LAYER).broadcast(encode(PostMessage(club.ben.id, "Anna", each)))
        forgeries = 1 + len(forged)  # the first of a page ends it
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


def sim_club(seed: int, count: int = 3) -> tuple[GroupBus, list[BusMember]]:
    """Members with tickets in group 7, on the bus. The last one is hostile, and has joined as well."""
    bus = ticketed_bus(seed)
    members = [bus.add(name) for name in ("anna", "ben", "cleo", "dora")[: count - 1]] + [bus.add("mallory")]
    members[0].participant.create("Chess club", group=7)
    bus.run(10)
    for member in members[1:]:
        member.participant.join(7)
    bus.run(20)
    return bus, members


def verified_count(member: BusMember) -> int:
    assert isinstance(member.post_signer, SimPostSigner)
    return member.post_signer.verified_count


def history_page(posts: list[Post]) -> HistoryPage:
    held = MessageSet()
    for post in posts:
        held.add(post.id)
    return HistoryPage(7, 0, 0, 0, True, held.encode(1000), (), (), pack_posts(posts))


def own_posts(member: BusMember, count: int) -> list[Post]:
    signer, participant = member.post_signer, member.participant
    assert signer is not None
    posts = [Post(participant.me.id, sequence, None, 0, b"x") for sequence in range(1, count + 1)]
    return [proofs.signed(signer, 7, participant.nonce, each) for each in posts]


def test_forged_posts_of_a_page_cost_one_verification() -> None:
    bus, (anna, ben, mallory) = sim_club(1)
    forged = [each._replace(author=anna.participant.me.id) for each in own_posts(mallory, 500)]
    for number in range(20):
        mallory.participant.send(history_page(forged[number:]))
        bus.run(1)
    assert verified_count(ben) == ben.participant.forged_messages == 1
    bus.run(FORGER_IGNORED_S)
    mallory.participant.send(history_page(own_posts(mallory, 3)))
    bus.run(1)
    assert len(ben.delivered) == 3, "it is not ignored forever"


def test_too_many_proofs_in_a_page_are_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    bus, (_, ben, mallory) = sim_club(1)
    with monkeypatch.context() as patch:
        patch.setattr(message_fields, "_INDEXES", xdr.array(xdr.UINT, 4096))
        page = history_page(own_posts(mallory, PAGE_PROOFS_MAX + 1))
    mallory.participant.send(page)
    bus.run(1)
    assert (verified_count(ben), ben.participant.malformed_messages) == (0, 1)


def test_verifications_have_a_rate_limit_and_other_peers_do_not_wait_for_the_busy_one() -> None:
    bus, (anna, ben, mallory) = sim_club(1)
    bus.delay = lambda _random: 0.01
    posts = own_posts(mallory, 15_000)
    started_at = bus.clock.now
    for first in range(0, len(posts), 500):
        mallory.participant.send(history_page(posts[first : first + 500]))
    bus.run(0.1)
    anna.participant.send(history_page(own_posts(anna, 3)))
    while bus.clock.now < started_at + 1:
        bus.run(0.1)
        assert verified_count(ben) <= VERIFICATIONS_BURST + VERIFICATIONS_PER_S * (bus.clock.now - started_at) + 500
    assert len([each for each in ben.delivered if each.verified_name == "anna"]) == 3
    bus.run(10)
    assert len(ben.delivered) == 15_003, "pages wait, and are not lost"


def test_members_that_pass_on_posts_of_another_owner_are_heard() -> None:
    """Their store is from before the channel had a new authority, or they do not have the revocation list."""
    bus, (anna, ben, mallory) = sim_club(1)
    posts = own_posts(mallory, 4)
    posts[1] = posts[1]._replace(credential=FOREIGN)
    anna.participant.send(history_page(posts))
    bus.run(1)
    assert [each.sequence for each in ben.delivered] == [1, 3, 4]
