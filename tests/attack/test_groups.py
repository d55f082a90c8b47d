"""A member of a group on a channel with tickets that speaks in another's name, or asks too much."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

import broadloom
from broadloom.apps.chat.group_model import GroupModel
from broadloom.apps.chat.read_state import ReadState
from broadloom.groups import LAYER, Group, GroupPublisher, Groups, message_fields, proofs
from broadloom.groups.codec import decode, encode
from broadloom.groups.conversation import UNAVAILABLE_S
from broadloom.groups.history_server import COMPARED_AUTHORS_BURST, COMPARED_AUTHORS_PER_S
from broadloom.groups.message_fields import AuthorIntervals, pack_posts
from broadloom.groups.message_set import MessageSet
from broadloom.groups.messages import DirectoryPage, DirectoryRequest, HistoryPage, HistoryRequest, PostMessage
from broadloom.groups.model import Post
from broadloom.groups.page_queue import FORGER_IGNORED_S, VERIFICATIONS_BURST, VERIFICATIONS_PER_S
from broadloom.groups.settings import PAGE_PROOFS_MAX, RetentionPolicy
from broadloom.protocol.identity import Role
from broadloom.security import Authority
from broadloom.wire import xdr
from tests.apps.chat.test_drawing import rendered_lines
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


async def test_chat_marks_posts_without_proof_that_it_reads_from_the_history() -> None:
    async with ticketed_club() as club:
        publisher = GroupPublisher(club.ben.id, "Anna")
        await club.mallory.layer(LAYER).broadcast(page(club.ben, Post(publisher.id, 1, None, 0, b"who wrote this?")))
        await club.anna.send_text("I did not")
        await eventually(lambda: len(club.ben.history()) == 2)
        model = GroupModel(club.ben._groups, club.ben, ReadState())
        tree = model.open()
        await eventually(lambda: not model.work())
        lines = rendered_lines(tree, model.names)
        assert len(lines) == 2, lines
        assert {"who wrote this?" in line: "(unproven)" in line for line in lines} == {True: True, False: False}


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


def sim_club(seed: int, retention: RetentionPolicy | None = None) -> tuple[GroupBus, list[BusMember]]:
    """Three members with tickets in group 7, on the bus. The last one is hostile."""
    bus = ticketed_bus(seed)
    members = [bus.add(name) for name in ("anna", "ben", "mallory")]
    members[0].participant.create("Chess club", retention, group=7)
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


def false_pages(kind: str, request: HistoryRequest, requester: int, true_posts: list[Post]) -> list[HistoryPage]:
    """What a hostile member answers to a request for history."""
    held = history_page(true_posts).contents
    forged = [each._replace(data=b"I resign", credential=FOREIGN) for each in true_posts]
    reply = HistoryPage(7, requester, request.request_id, 0, True, held, (), (), pack_posts([]))
    match kind:
        case "sent":
            return [reply]
        case "sent and unavailable":
            return [replace(reply, unavailable=held)]
        case "more to come":
            return [replace(reply, contents=(), remaining=100, is_last=is_last) for is_last in (False, True)]
        case "changed":
            return [replace(reply, body=pack_posts(forged))]
    raise ValueError(kind)


def lie_about_history(bus: GroupBus, mallory: BusMember, kind: str, true_posts: list[Post]) -> None:
    """Answer every request at once, and again before an honest member's back-off ends."""
    mallory.participant.conversations.clear()  # it serves nothing
    transmit = bus.transmit

    def transmit_and_lie(sender: BusMember, data: bytes) -> None:
        transmit(sender, data)
        message = decode(data)
        if isinstance(message, HistoryRequest) and sender is not mallory and mallory.is_alive:
            for delay_s in (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5):
                for page in false_pages(kind, message, sender.peer_id, true_posts):
                    mallory.call_later(delay_s, mallory.participant.send, page)

    bus.transmit = transmit_and_lie  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", ["sent", "sent and unavailable", "more to come", "changed"])
def test_false_history_page_does_not_hide_history(kind: str) -> None:
    bus, (anna, ben, mallory) = sim_club(1)
    bus.delay = lambda _random: 0.01
    for number in range(5):
        anna.send_text(7, f"post {number}")
    bus.run(5)
    true_posts = [post for _, post in anna.participant.conversations[7].history.scan(0, 10)]
    assert len(true_posts) == len(ben.delivered) == 5
    lie_about_history(bus, mallory, kind, true_posts)
    newcomer = bus.add("newcomer")
    bus.run(5)
    newcomer.participant.join(7)
    bus.run(5)
    assert newcomer.texts() == [f"post {number}" for number in range(5)]


@pytest.mark.parametrize("retention", [RetentionPolicy(), RetentionPolicy(messages_max=50)])
def test_false_claim_that_posts_are_unavailable_expires(retention: RetentionPolicy) -> None:
    """No honest member is there to send them; they come back later, without a request of their own."""
    bus, (anna, ben, mallory) = sim_club(1, retention=retention)
    for number in range(5):
        anna.send_text(7, f"post {number}")
    bus.run(5)
    true_posts = [post for _, post in anna.participant.conversations[7].history.scan(0, 10)]
    lie_about_history(bus, mallory, "sent and unavailable", true_posts)
    newcomer = bus.add("newcomer")
    bus.run(5)
    newcomer.participant.join(7)
    anna.partition = ben.partition = 1
    bus.run(30)
    assert newcomer.texts() == []
    bus.kill(mallory)
    anna.partition = ben.partition = 0
    bus.run(60 if retention == RetentionPolicy() else UNAVAILABLE_S + 60)
    assert newcomer.texts() == [f"post {number}" for number in range(5)]


def test_false_directory_page_does_not_hide_groups() -> None:
    """It claims to be complete, and to come from a directory that equals those of the others."""
    bus, (anna, _, mallory) = sim_club(1)
    bus.delay = lambda _random: 0.01
    transmit, empty = bus.transmit, message_fields.pack_group_records([])

    def transmit_and_lie(sender: BusMember, data: bytes) -> None:
        transmit(sender, data)
        request = decode(data)
        if isinstance(request, DirectoryRequest) and sender is not mallory:
            known = anna.participant.directory
            buckets = known.hash_buckets(len(request.buckets))
            lie = DirectoryPage(sender.peer_id, known.hash, True, True, 0, buckets, (), empty)
            for delay_s in (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5):
                mallory.call_later(delay_s, mallory.participant.send, lie)

    bus.transmit = transmit_and_lie  # type: ignore[method-assign]
    mallory.participant.on_message = lambda peer, data: None  # type: ignore[method-assign]
    newcomer = bus.add("newcomer")
    bus.run(5)
    assert [each.description for each in newcomer.participant.groups()] == ["Chess club"]
