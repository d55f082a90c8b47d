"""Priority and TTL: what a receiver that cannot keep up skips, and that it is reported."""

import asyncio
import logging
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from broadloom import Channel, Missed, Priority
from broadloom.protocol.events import LinkDownReason
from broadloom.transport.limits import Limits, TcpTuning
from tests.channel.joined import connected_channels
from tests.support import eventually

SETTINGS = TcpTuning(
    discovery_retry_s=0.1, leave_linger_s=0.05, backlog_shed_bytes=512 << 10, limits=Limits(stall_timeout_s=30)
)
COUNT, SIZE = 400, 20_000


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL, "broadloom"):
        yield


def numbers(missed: list[Missed]) -> list[int]:
    return [number for each in missed for number in range(each.first_sequence, each.last_sequence + 1)]


def record_missed(channel: Channel) -> list[Missed]:
    missed: list[Missed] = []
    channel.on_event(lambda event: missed.append(event) if isinstance(event, Missed) else None)
    return missed


async def break_links(channel: Channel) -> None:
    """Break all links; the peer repairs them by itself."""
    await eventually(lambda: channel.status().neighbors)
    for link in list(channel._node.peer.links):
        link.close(LinkDownReason.CONNECTION_LOST)


@pytest.mark.parametrize("size", [10, 200_000])
async def test_receiver_gets_missed_event_for_expired_message(size: int) -> None:
    async with connected_channels(2, settings=SETTINGS) as (author, reader):
        missed = record_missed(reader)
        await author.broadcast(b"in time", ttl_s=60)
        assert (await reader.receive(20)).text == "in time"
        await break_links(author)
        first = author.broadcast_nowait(b"also in time")
        last = author.broadcast_nowait(bytes(size), ttl_s=0.01)
        author.broadcast_nowait(b"no expiry", ttl_s=float("inf"))
        assert (await reader.receive(20)).text == "also in time"
        assert (await reader.receive(20)).text == "no expiry"
        assert numbers(missed) == list(range(first + 1, last + 1))
        assert reader.missed_count == last - first
        assert reader.unread_count == 0
        assert author.missed_count == 0


async def test_message_within_ttl_is_delivered() -> None:
    async with connected_channels(3, tls=True, signed=True) as (author, *readers):
        for number in range(50):
            await author.broadcast(b"%d" % number, priority=number % 4, ttl_s=30 + number % 3)
        for reader in readers:
            assert [int((await reader.receive(20)).text) for _ in range(50)] == list(range(50))
            assert reader.missed_count == 0


class OverloadResult(NamedTuple):
    """What the reader got after it resumed."""

    received: list[int]
    missed: list[int]
    high_priority: set[int]
    shed_count: int
    last: int


async def overload_reader() -> OverloadResult:
    """The reader stalls for a while, then resumes. Ten of fifty messages have high priority."""
    async with connected_channels(2, settings=SETTINGS) as (
        author,
        reader,
    ):
        missed = record_missed(reader)
        reader._node.pause_reading()
        mattered: set[int] = set()
        for number in range(COUNT):
            priority = Priority.LOW if number % 50 < 40 else Priority.HIGH
            sequence = author.broadcast_nowait(b"%08d" % number + bytes(SIZE), priority=priority)
            if priority is Priority.HIGH:
                mattered.add(sequence)
            if number % 20 == 0:
                await asyncio.sleep(0.001)
        reader._node.resume_reading()
        async with asyncio.timeout(20):
            await reader._inbox.wait()
        last = author.broadcast_nowait(b"%08d" % COUNT + bytes(SIZE))
        got: list[int] = []
        while not got or got[-1] < last:
            message = await reader.receive(20)
            assert message.data == b"%08d" % (message.sequence - 1) + bytes(SIZE)
            got.append(message.sequence)
        return OverloadResult(got, numbers(missed), mattered, author.status().counters["backlog_shed"], last)


async def test_slow_receiver_gets_high_priority_in_order_and_missed_events_for_the_rest() -> None:
    outcome = await overload_reader()
    assert outcome.received == sorted(set(outcome.received))
    assert outcome.high_priority <= set(outcome.received)
    assert sorted(outcome.received + outcome.missed) == list(range(1, outcome.last + 1)), "received or missed"
    assert outcome.shed_count > 0


async def test_slow_receiver_skips_lowest_priority_first() -> None:
    outcome = await overload_reader()
    assert len(outcome.missed) == outcome.shed_count > 0
