"""Many topics: a directory of thousands, and a feed over a hundred channels."""

import pytest

from broadloom.apps.delivery.entry import Offer
from tests.apps.delivery.newsroom import Newsroom
from tests.support import eventually


def offer(number: int) -> Offer:
    path = f"category {number % 100}/topic {number}"
    return Offer(path=path, topics={path: ("nfl",)}, title=f"Number {number}")


@pytest.mark.long
async def test_directory_of_ten_thousand_topics_opens_completely() -> None:
    async with Newsroom() as room:
        desk = await room.desk()
        for number in range(10_000):
            await desk.create(offer(number))
        anna = await room.open("anna", timeout_s=120.0)
        await eventually(lambda: len(anna.directory) == 10_000)
        assert [topic.title for topic in anna.search("number 9876")] == ["Number 9876"]


@pytest.mark.long
async def test_category_of_a_hundred_channels_is_one_feed() -> None:
    async with Newsroom() as room:
        desk = await room.desk()
        for number in range(100):
            await desk.create(Offer(path=f"sports/{number}", topics={f"sports/{number}": ("nfl",)}))
        anna, nfl = await room.open("anna"), await room.open("nfl")
        await nfl.wait_for("sports/99")
        feed = await room.enter(anna.subscribe("sports", timeout_s=200))
        assert set(feed.topics.values()) == {"connected"}
        producers = [await room.enter(nfl.produce(f"sports/{number}", timeout_s=200)) for number in (0, 50, 99)]
        for producer in producers:
            await producer.wait_for_subscribers(1, timeout_s=60)
            await producer.publish_text(producer.path)
        assert {(await feed.receive(60)).text for _ in producers} == {each.path for each in producers}
