"""The delivery service for synchronous programs, and that its twins lack nothing."""

import asyncio
from typing import Any

import pytest

from broadloom.apps import delivery
from broadloom.apps.delivery import sync
from tests.apps.delivery.newsroom import Newsroom
from tests.channel.joined import QUICK
from tests.support import TIMEOUT_S

SCORES = "sports/nfl/scores"


def read_and_publish(room: Newsroom) -> tuple[str, str, dict[str, str]]:
    def opened(name: str) -> sync.Service:
        return sync.join(room.name, room.ticket(name), settings=QUICK)

    with opened("editor") as editor, opened("nfl") as nfl, opened("anna") as anna:
        editor.create(SCORES, producers=["nfl"])
        for service in (nfl, anna):
            service.wait_for(SCORES)
        with anna.subscribe("sports") as feed, nfl.produce(SCORES) as producer:
            producer.wait_for_subscribers(1, timeout_s=TIMEOUT_S)
            producer.publish_text("Bears 21:14")
            item = next(iter(feed))
            states = feed.topics
        with pytest.raises(delivery.DeniedError, match="not a producer"), anna.produce(SCORES):
            pass
        editor.close_topic(SCORES)
        return item.producer, item.text, states


async def test_synchronous_program_subscribes_and_publishes() -> None:
    async with Newsroom() as room:
        await room.desk()
        found = await asyncio.to_thread(read_and_publish, room)
        assert found == ("nfl", "Bears 21:14", {SCORES: "connected"})


@pytest.mark.parametrize("name", ["Service", "Feed", "Producer"])
def test_synchronous_twins_have_all_public_members(name: str) -> None:
    twin: Any = getattr(sync, name)
    members = {each for each in vars(getattr(delivery, name)) if not each.startswith("_")} - {"aclose", "channel"}
    assert members <= set(dir(twin))
