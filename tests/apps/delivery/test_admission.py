"""Qualifications, levels, withdrawal, renewal, several desks and none: over real sockets."""

import asyncio
import base64
from pathlib import Path

import pytest

import broadloom
from broadloom.apps import delivery
from broadloom.apps.delivery.messages import Action
from broadloom.errors import RejectedError
from tests.apps.delivery.newsroom import Newsroom
from tests.channel.joined import QUICK
from tests.support import eventually

SCORES = "sports/nfl/scores"
GONE_S = 10.0
"""A withdrawn subscriber hears nothing after this time."""


async def test_subscriber_needs_every_qualification_and_a_plan_of_the_topic() -> None:
    async with Newsroom() as room:
        paid = {"anna"}
        await room.desk(qualifications={"paid": paid, "adult": lambda name: name != "kid"})
        editor, anna, bob = await room.open("editor"), await room.open("anna"), await room.open("bob")
        await editor.create(SCORES, plans=["visitor"], qualifications=["paid", "adult"])
        await editor.create("misc", qualifications=["unknown to the desk"])
        for each in (anna, bob):
            await each.wait_for(SCORES, "misc")
        with pytest.raises(delivery.DeniedError, match="qualification 'paid'"):
            await room.enter(bob.subscribe(SCORES, plan="visitor"))
        with pytest.raises(delivery.DeniedError, match="choose a plan; plans: visitor"):
            await room.enter(anna.subscribe(SCORES))
        with pytest.raises(delivery.DeniedError, match="'unknown to the desk'"):
            await room.enter(anna.subscribe("misc"))
        with pytest.raises(delivery.NoTopicError, match="no topic sprots"):
            await room.enter(anna.subscribe("sprots"))
        async with anna.subscribe("**", plan="visitor") as feed:
            assert feed.topics[SCORES] == "connected"
            assert feed.topics["misc"].startswith("refused: misc: you do not have the qualification")
        paid.add("bob")
        async with bob.subscribe(SCORES, plan="visitor") as feed:
            assert feed.topics == {SCORES: "connected"}


async def test_withdrawn_subscriber_hears_nothing_and_is_not_admitted_until_reinstated() -> None:
    async with Newsroom() as room:
        await room.desk()
        editor, anna, bob, nfl = [await room.open(name) for name in ("editor", "anna", "bob", "nfl")]
        await editor.create(SCORES, producers=["nfl"])
        for each in (anna, bob, nfl):
            await each.wait_for(SCORES)
        kept, lost = await room.enter(anna.subscribe(SCORES)), await room.enter(bob.subscribe(SCORES))
        producer = await room.enter(nfl.produce(SCORES))
        await producer.wait_for_subscribers(2, timeout_s=20)
        await producer.publish_text("before")
        assert (await kept.receive(20)).text == (await lost.receive(20)).text == "before"
        await editor.withdraw("bob", SCORES)
        async with asyncio.timeout(GONE_S):
            with pytest.raises(delivery.DeliveryError, match="withdrawn"):
                await lost.receive()
        await producer.publish_text("after")
        assert (await kept.receive(20)).text == "after"
        with pytest.raises(delivery.DeniedError, match="was withdrawn; ask the operator"):
            await room.enter(bob.subscribe(SCORES))
        await editor.reinstate("bob", SCORES)
        again = await room.enter(bob.subscribe(SCORES))
        await producer.wait_for_subscribers(2, timeout_s=20)
        await producer.publish_text("again")
        assert (await again.receive(20)).text == "again"


async def test_ticket_of_one_topic_opens_no_other_and_a_revoked_one_opens_nothing() -> None:
    async with Newsroom() as room:
        await room.desk(qualifications={"paid": ["anna"]})
        editor, anna, bob = await room.open("editor"), await room.open("anna"), await room.open("bob")
        free, paid = await editor.create("free"), await editor.create("paid", qualifications=["paid"])
        for each in (anna, bob):
            await each.wait_for("free", "paid")
        await room.enter(anna.subscribe("free", "paid"))
        (grant,) = await bob._grants(Action.SUBSCRIBE, ["free"], "", 20)
        ticket = bob._ticket(free, base64.b64decode(grant.ticket))
        with pytest.raises(RejectedError):
            await broadloom.connect(paid.channel, ticket=ticket, settings=QUICK, timeout_s=5)
        with pytest.raises(RejectedError):
            await broadloom.connect(room.name, ticket=ticket, settings=QUICK, timeout_s=5)
        await editor.withdraw("bob", "free")
        with pytest.raises(RejectedError, match="revoked"):
            await broadloom.connect(free.channel, ticket=ticket, settings=QUICK, timeout_s=5)


async def test_running_subscription_outlives_all_desks_and_a_new_one_waits_for_one(tmp_path: Path) -> None:
    async with Newsroom() as room:
        first, second = await room.desk(store=tmp_path / "a.db"), await room.desk()
        editor, anna, nfl = await room.open("editor"), await room.open("anna"), await room.open("nfl")
        await editor.create(SCORES, producers=["nfl"])
        for each in (anna, nfl):
            await each.wait_for(SCORES)
        producer, feed = await room.enter(nfl.produce(SCORES)), await room.enter(anna.subscribe(SCORES))
        await first.aclose()
        await eventually(lambda: len(anna.desks()) == 1)
        async with anna.subscribe(SCORES):
            pass
        await second.aclose()
        await eventually(lambda: not anna.desks())
        await producer.wait_for_subscribers(1, timeout_s=20)
        await producer.publish_text("no desk")
        assert (await feed.receive(20)).text == "no desk"
        with pytest.raises(delivery.NoDeskError, match="no desk answers"):
            await room.enter(anna.subscribe(SCORES, timeout_s=0.3))
        waiting = asyncio.ensure_future(room.enter(anna.subscribe(SCORES)))
        await room.desk()
        assert (await waiting).topics == {SCORES: "connected"}


async def test_renewal_loses_and_repeats_nothing() -> None:
    async with Newsroom() as room:
        await room.desk()
        editor, anna, nfl = await room.open("editor"), await room.open("anna"), await room.open("nfl")
        await editor.create(SCORES, producers=["nfl"])
        for each in (anna, nfl):
            await each.wait_for(SCORES)
        feed, producer = await room.enter(anna.subscribe(SCORES)), await room.enter(nfl.produce(SCORES))
        await producer.wait_for_subscribers(1, timeout_s=20)
        membership, sent = feed._memberships[SCORES], 0
        for _ in range(2):
            before = membership.connection
            membership.renew()
            while membership.connection is before:
                sent += 1
                await producer.publish_text(str(sent))
                await asyncio.sleep(0.005)
        assert [int((await feed.receive(20)).text) for _ in range(sent)] == list(range(1, sent + 1))
        await producer.publish_text("last")
        assert (await feed.receive(20)).text == "last"


async def test_category_has_one_channel_and_producers_keep_to_their_topics() -> None:
    async with Newsroom() as room:
        await room.desk()
        editor, anna, dwd, meteo = [await room.open(name) for name in ("editor", "anna", "dwd", "meteo")]
        entry = await editor.create("weather", topics={"berlin": ["dwd"], "paris": ["meteo"]})
        for each in (anna, dwd, meteo):
            await each.wait_for("weather/berlin", "weather/paris")
        assert [topic.entry.channel for topic in anna.topics("weather")] == [entry.channel, entry.channel]
        feed = await room.enter(anna.subscribe("weather/berlin"))
        paris, berlin = (
            await room.enter(meteo.produce("weather/paris")),
            await room.enter(dwd.produce("weather/berlin")),
        )
        with pytest.raises(delivery.DeniedError, match="meteo is not a producer of weather/berlin"):
            await room.enter(meteo.produce("weather/berlin"))
        await paris.wait_for_subscribers(2, timeout_s=20)
        await paris.publish_text("sun")
        # A modified program sends on a topic of another producer: the ticket lets it, the feed does not.
        await paris._membership.connection.channel.broadcast(b"false", topic="weather/berlin")
        await eventually(lambda: feed.rejected_count)
        await berlin.publish_text("rain")
        item = await feed.receive(20)
        assert (item.topic, item.producer, item.text) == ("weather/berlin", "dwd", "rain")


async def test_topic_created_later_belongs_to_the_feed_and_a_closed_one_ends() -> None:
    async with Newsroom() as room:
        await room.desk()
        editor, anna, nfl = await room.open("editor"), await room.open("anna"), await room.open("nfl")
        closed = await editor.create("sports/one")
        await anna.wait_for("sports")
        feed = await room.enter(anna.subscribe("sports/**"))
        await editor.create("sports/two", producers=["nfl"])
        await nfl.wait_for("sports/two")
        await eventually(lambda: feed.topics.get("sports/two") == "connected")
        producer = await room.enter(nfl.produce("sports/two"))
        await producer.wait_for_subscribers(1, timeout_s=20)
        await producer.publish_text("new")
        assert (await feed.receive(20)).text == "new"
        await editor.close_topic("sports/one", "the season is over")
        await eventually(lambda: feed.topics["sports/one"].endswith("the season is over"))
        assert [topic.path for topic in anna.topics()] == ["sports/two"]
        again = await editor.create("sports/one")
        assert again.channel != closed.channel


@pytest.mark.parametrize("level", ["plain", "tls", "signed"])
async def test_open_topic_needs_no_ticket(level: str) -> None:
    async with Newsroom() as room:
        await room.desk()
        editor, anna = await room.open("editor"), await room.open("anna")
        await editor.create("traffic", level=level)
        await anna.wait_for("traffic")
        feed, producer = await room.enter(anna.subscribe("traffic")), await room.enter(editor.produce("traffic"))
        await producer.wait_for_subscribers(1, timeout_s=20)
        await producer.publish_text("jam")
        item = await feed.receive(20)
        assert (item.text, item.producer) == ("jam", "")


async def test_directory_and_subscribers_outlive_all_programs(tmp_path: Path) -> None:
    room = Newsroom()
    async with room:
        await room.desk(store=tmp_path / "a.db")
        editor, anna = await room.open("editor"), await room.open("anna")
        await editor.create(SCORES, plans=["visitor"])
        await anna.wait_for(SCORES)
        async with anna.subscribe(SCORES, plan="visitor"):
            pass
        await editor.withdraw("anna", SCORES)
    again = Newsroom()
    again.name, again.authority = room.name, room.authority
    async with again:
        desk = await again.desk(store=tmp_path / "a.db")
        anna = await again.open("anna")
        await anna.wait_for(SCORES)
        (record,) = desk.subscribers()
        assert (record.name, record.get(SCORES).periods[0].plan) == ("anna", "visitor")
        with pytest.raises(delivery.DeniedError, match="withdrawn"):
            await again.enter(anna.subscribe(SCORES, plan="visitor"))
