"""The delivery service over real sockets."""

from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from broadloom.apps import delivery
from broadloom.apps.delivery import meter as meter_module
from broadloom.errors import NotSentError
from broadloom.rules import Rules, SealingPrivateKey, parse
from broadloom.wire import PeerId
from tests.apps.delivery.bills import built
from tests.apps.delivery.newsroom import Newsroom
from tests.support import eventually, eventually_equal

SCORES = "sports/nfl/scores"


async def test_reader_gets_items_with_proven_producer_and_topic(tmp_path: Path) -> None:
    async with Newsroom() as room:
        await room.desk(store=tmp_path / "directory.db")
        editor, reader = await room.open("editor"), await room.open("anna")
        await editor.create(SCORES, producers=["nfl"], title="NFL scores")
        (topic,) = await reader.wait_for("sports")
        assert (topic.path, topic.title, topic.producers) == (SCORES, "NFL scores", ("nfl",))
        nfl = await room.open("nfl")
        await nfl.wait_for(SCORES)
        async with reader.subscribe("sports") as feed, nfl.produce(SCORES) as producer:
            await producer.wait_for_subscribers(1, timeout_s=20)
            await producer.publish_text("Bears 21:14")
            await producer.advertise("spring-sale", b"Tea at half price")
            item = await feed.receive(timeout_s=20)
            assert (item.topic, item.producer, item.text, item.advert) == (SCORES, "nfl", "Bears 21:14", None)
            advert = await feed.receive(timeout_s=20)
            assert (advert.text, advert.advert) == ("Tea at half price", "spring-sale")
            assert feed.topics == {SCORES: "connected"}
            assert feed.receive_nowait() is None
            with pytest.raises(TimeoutError, match=r"no item of sports within 0\.01 s"):
                await feed.receive(timeout_s=0.01)
            with pytest.raises(TimeoutError, match=rf"{SCORES}: fewer than 9 subscribers within 0\.01 s"):
                await producer.wait_for_subscribers(9, timeout_s=0.01)


async def test_rules_and_private_keys_of_a_service_hold_on_the_channels_of_topics(tmp_path: Path) -> None:
    private = SealingPrivateKey.generate()
    private.save(tmp_path / "com.key")
    private.public.save(tmp_path / "com.pub")
    rules = (
        'IF { matches(/bet/) } THEN { refuse "a bet" }\n'
        f'IF {{ topic("{SCORES}") }} THEN {{ encrypt for "com.pub" }}'
    )
    async with Newsroom() as room:
        await room.desk(creators=["nfl"])
        nfl = await room.open("nfl", rules=Rules(parse(rules), directory=tmp_path))
        reader = await room.open("anna", private_keys=[tmp_path / "com.key"])
        await nfl.create(SCORES, producers=["nfl"])
        await reader.wait_for(SCORES)
        async with reader.subscribe(SCORES) as feed, nfl.produce(SCORES) as producer:
            await producer.wait_for_subscribers(1, timeout_s=20)
            with pytest.raises(NotSentError, match="a bet"):
                await producer.publish_text("bet")
            await producer.publish_text("Bears 21:14")
            assert (await feed.receive(timeout_s=20)).text == "Bears 21:14"


async def test_only_listed_producers_may_produce_and_only_creators_may_create() -> None:
    async with Newsroom() as room:
        await room.desk()
        editor, mallory = await room.open("editor"), await room.open("mallory")
        await editor.create(SCORES, producers=["nfl"])
        await mallory.wait_for(SCORES)
        with pytest.raises(delivery.DeniedError, match="mallory is not a producer of sports/nfl/scores"):
            async with mallory.produce(SCORES):
                pass
        with pytest.raises(delivery.DeniedError, match="may not create"):
            await mallory.create("fake/news")
        with pytest.raises(delivery.DeniedError, match="created by editor"):
            await mallory.close_topic(SCORES)


async def test_meter_records_subscribers_by_the_name_on_their_ticket(tmp_path: Path) -> None:
    async with Newsroom() as room:
        await room.desk()
        editor, reader = await room.open("editor"), await room.open("anna")
        meter = await room.meter(tmp_path / "tapes")
        await editor.create(SCORES, producers=["nfl"], identify_s=0.1)
        await reader.wait_for(SCORES)
        await meter.wait_until_metering(SCORES)
        async with reader.subscribe(SCORES):
            await eventually(lambda: meter.identification_count >= 3)


async def test_pipeline_bills_what_the_meter_recorded(tmp_path: Path) -> None:
    async with Newsroom() as room:
        await room.desk()
        editor, reader, nfl = await room.open("editor"), await room.open("anna"), await room.open("nfl")
        meter = await room.meter(tmp_path / "tapes")
        await editor.create(SCORES, producers=["nfl"])
        for each in (reader, nfl):
            await each.wait_for(SCORES)
        await meter.wait_until_metering(SCORES)
        async with reader.subscribe(SCORES) as feed, nfl.produce(SCORES) as producer:
            await producer.wait_for_subscribers(2, timeout_s=20)
            await eventually(lambda: meter.identification_count)
            await producer.advertise("spring-sale", b"Tea")
            assert (await feed.receive(timeout_s=20)).advert == "spring-sale"
    tables = built(tmp_path, "invoices", "ad_broadcasts")
    (session,) = tables["sessions"].filter(pl.col("evidence") == "identifications").to_dicts()
    assert (session["subscriber"], session["is_proven"], session["end_status"]) == ("anna", True, "left")
    (invoice,) = tables["invoices"].filter(pl.col("subscriber") == "anna").to_dicts()
    assert (invoice["kind"], invoice["plan_name"], invoice["amount"]) == ("open", "visitor", Decimal("0.45"))
    (ad,) = tables["ad_broadcasts"].to_dicts()
    assert (ad["ad_name"], ad["topic"], ad["advertiser"]) == ("spring-sale", SCORES, "acme")


async def test_directory_says_what_plans_cost_and_how_many_are_connected(tmp_path: Path) -> None:
    async with Newsroom() as room:
        await room.desk(prices={"visitor": "0.45 EUR per hour"})
        editor, anna = await room.open("editor"), await room.open("anna")
        await room.meter(tmp_path / "tapes")
        await editor.create(SCORES, producers=["nfl"], plans=["visitor"])
        await anna.wait_for(SCORES)
        await eventually_equal(anna.prices, {"visitor": "0.45 EUR per hour"})
        await eventually_equal(lambda: anna.audience(SCORES, "no/topic"), {SCORES: 0})
        async with anna.subscribe(SCORES, plan="visitor"):
            await eventually_equal(lambda: editor.audience(SCORES), {SCORES: 1})
        await eventually_equal(lambda: editor.audience(SCORES), {SCORES: 0})


async def test_question_about_all_topics_of_a_channel_costs_a_meter_one_pass_over_its_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[object] = []
    go_through = meter_module._Connection._present

    def counted(connection: meter_module._Connection) -> dict[PeerId, str]:
        passes.append(connection)
        return go_through(connection)

    monkeypatch.setattr(meter_module._Connection, "_present", counted)
    async with Newsroom() as room:
        await room.desk()
        editor, anna = await room.open("editor"), await room.open("anna")
        meter = await room.meter(tmp_path / "tapes")
        topics = [f"weather/{number}" for number in range(100)]
        await editor.create("weather", topics={topic.removeprefix("weather/"): () for topic in topics})
        await anna.wait_for(*topics)
        async with anna.subscribe("weather/7"):
            await eventually(lambda: meter.audience("weather/7") == frozenset({"anna"}))
            passes.clear()
            assert await editor.audience(*topics) == dict.fromkeys(topics, 0) | {"weather/7": 1}
            assert len(passes) == 1


async def test_subscribers_see_their_own_account_and_creators_see_the_subscribers() -> None:
    async with Newsroom() as room:
        await room.desk(operators=["boss"])
        editor, anna, boss = await room.open("editor"), await room.open("anna"), await room.open("boss")
        await editor.create(SCORES, plans=["visitor"])
        await anna.wait_for(SCORES)
        async with anna.subscribe(SCORES, plan="visitor"):
            account = await anna.account()
            assert (account.name, account.is_creator, account.is_operator) == ("anna", False, False)
            assert account.subscriptions[SCORES].plan == "visitor"
            for each in (editor, boss):
                assert {name: one.plan for name, one in (await each.subscribers(SCORES)).items()} == {"anna": "visitor"}
            with pytest.raises(delivery.DeniedError, match=r"^sports/nfl/scores was created by editor"):
                await anna.subscribers(SCORES)
        await anna.unsubscribe(SCORES)
        assert (await anna.account()).subscriptions[SCORES].plan is None
        rights = [(one.is_creator, one.is_operator) for one in [await editor.account(), await boss.account()]]
        assert rights == [(True, False), (True, True)]


async def test_desk_that_closes_at_once_leaves_no_task_behind() -> None:
    async with Newsroom() as room:
        desk = await room.desk()
        await desk.aclose()
        assert not desk._tasks


async def test_directory_is_left_if_something_that_was_opened_with_it_cannot_be_closed() -> None:
    class Faulty:
        async def aclose(self) -> None:
            raise RuntimeError("a fault")

    async with Newsroom() as room:
        await room.desk()
        reader = await room.open("reader")
        reader._open[Faulty()] = None
        with pytest.raises(RuntimeError, match="a fault"):
            await reader.leave()
        assert not reader._channel.is_connected
        reader._open.clear()
