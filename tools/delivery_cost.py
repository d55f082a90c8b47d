"""What the delivery service costs: `python -m tools.delivery_cost`. About a minute; `--directory` takes another one.

All programs share one process, on loopback. Times are by the clock and include what other programs of the machine
take; `cpu` is what this process has computed. The cost of messages of other topics is measured without a network.
"""

import asyncio
import json
import resource
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import uuid4

import typer

from broadloom import Authority, Role
from broadloom.apps import delivery
from broadloom.channel.subscription import Subscriptions
from broadloom.protocol.events import Batch
from broadloom.wire import PeerId
from broadloom.wire.message_headers import Envelope, Headers

ATTEMPTS = 10
CHANNELS = 100
TOPICS = 10_000
PUBLISH_S = 0.005
MESSAGES = 100_000
ROUNDS = 7


class Room:
    """A desk, and services under any name."""

    def __init__(self, desk: delivery.Desk, authority: Authority, stack: AsyncExitStack) -> None:
        self.desk = desk
        self._authority = authority
        self._stack = stack

    async def open(self, name: str) -> delivery.Service:
        ticket = self._authority.issue_ticket(name, Role.CONSUMER, datetime.now(UTC) + timedelta(hours=1))
        return await self._stack.enter_async_context(delivery.join(self.desk.name, ticket, timeout_s=120.0))


@asynccontextmanager
async def room() -> AsyncIterator[Room]:
    authority = Authority.generate()
    async with AsyncExitStack() as stack:
        desk = await stack.enter_async_context(delivery.Desk(f"delivery/{uuid4().hex}", authority))
        yield Room(desk, authority, stack)


async def first_item_s() -> list[float]:
    """From subscribing to a topic to its first item, which is published every few milliseconds."""
    found = []
    async with room() as opened:
        await opened.desk.create(delivery.Offer(path="scores", topics={"scores": ("nfl",)}))
        nfl, anna = await opened.open("nfl"), await opened.open("anna")
        for service in (nfl, anna):
            await service.wait_for("scores")
        async with nfl.produce("scores") as producer:
            publishing = asyncio.get_running_loop().create_task(_publish(producer))
            for _ in range(ATTEMPTS):
                started_at = time.perf_counter()
                async with anna.subscribe("scores") as feed:
                    await feed.receive(30)
                    found.append(time.perf_counter() - started_at)
            publishing.cancel()
    return found


async def _publish(producer: delivery.Producer) -> None:
    while True:
        await producer.publish_text("Bears 21:14")
        await asyncio.sleep(PUBLISH_S)


async def category() -> dict[str, float]:
    """Subscribing to a category whose topics have a channel each."""
    async with room() as opened:
        for number in range(CHANNELS):
            await opened.desk.create(delivery.Offer(path=f"sports/{number}"))
        anna = await opened.open("anna")
        await anna.wait_for(f"sports/{CHANNELS - 1}")
        before_mb, started_at, cpu = _memory_mb(), time.perf_counter(), time.process_time()
        async with anna.subscribe("sports", timeout_s=120) as feed:
            assert set(feed.topics.values()) == {"connected"}, feed.topics
            wall_s = time.perf_counter() - started_at
            return {"s": wall_s, "cpu_s": time.process_time() - cpu, "mb": _memory_mb() - before_mb}


async def directory() -> dict[str, float]:
    """Opening a directory of topics that have a channel each. `cpu_s` is that of the reader and of the desk."""
    async with room() as opened:
        for number in range(TOPICS):
            await opened.desk.create(delivery.Offer(path=f"category {number % 100}/topic {number}"))
        started_at, cpu = time.perf_counter(), time.process_time()
        anna = await opened.open("anna")
        await anna.wait_for(*(f"category {number}" for number in range(100)))
        assert len(anna.directory) == TOPICS, len(anna.directory)
        return {"s": time.perf_counter() - started_at, "cpu_s": time.process_time() - cpu}


def other_topic_us() -> float:
    """A message of another topic, in a batch of its own. The best of several rounds: other programs only add to it."""
    nothing: Any = None
    subscriptions = Subscriptions(nothing, nothing, nothing, nothing)
    wanted: Any = type("Wanted", (), {"pattern": "weather/berlin", "name": ""})()
    subscriptions.add(wanted)
    envelopes = [Envelope(Headers(topic=f"weather/city {number}"), 0) for number in range(50)]
    batches = [Batch(PeerId(1), 1, [b"data"], 1, envelopes=[each]) for each in envelopes]
    best = float("inf")
    for _ in range(ROUNDS):
        started_at = time.process_time()
        for _ in range(MESSAGES // len(batches)):
            for batch in batches:
                subscriptions.put(batch)
        best = min(best, (time.process_time() - started_at) / MESSAGES)
    return best * 1e6


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(
    with_directory: Annotated[
        bool, typer.Option("--directory", help="Measure a directory of 10,000 topics too.")
    ] = False,
) -> None:
    first = asyncio.run(first_item_s())
    result: dict[str, Any] = {
        "subscribe to first item, s": {"median": round(statistics.median(first), 3), "max": round(max(first), 3)},
        f"category of {CHANNELS} channels": _rounded(asyncio.run(category())),
        "message of another topic, us": round(other_topic_us(), 2),
    }
    if with_directory:
        result[f"directory of {TOPICS:,} channels"] = _rounded(asyncio.run(directory()))
    print(json.dumps(result, indent=2))


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in values.items()}


if __name__ == "__main__":
    typer.run(main)
