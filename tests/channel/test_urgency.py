"""Priority and lifetime: what gives way when somebody cannot keep up, and that it is told."""

import asyncio
import logging
from collections.abc import Iterator
from typing import NamedTuple

import pytest

import weft
from tests.channel.joined import joined
from tests.net.lines import play, until
from weft import Channel, Missed, Priority
from weft.fabric.events import Why

SETTINGS = weft.Settings(seek_wait_s=0.1, linger_s=0.05, behind_bytes=512 << 10)
COUNT, SIZE = 400, 20_000


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL, "weft"):
        yield


def numbers(missed: list[Missed]) -> list[int]:
    return [number for each in missed for number in range(each.first, each.last + 1)]


def watched(channel: Channel) -> list[Missed]:
    told: list[Missed] = []
    channel.on_event(lambda event: told.append(event) if isinstance(event, Missed) else None)
    return told


async def cut_off(channel: Channel) -> None:
    """Its links break, and it finds the others again by itself in a moment."""
    await until(lambda: channel.status().neighbours)
    for link in list(channel._node.peer.links):
        link.hang_up(Why.LOST)


@pytest.mark.parametrize("size", [10, 200_000])
def test_who_comes_too_late_for_a_message_is_told_that_it_missed_it(size: int) -> None:
    async def main() -> None:
        async with joined(2, settings=SETTINGS) as (author, reader):
            missed = watched(reader)
            await author.broadcast(b"in time", lifetime_s=60)
            assert (await reader.receive(20)).text == "in time"
            await cut_off(author)
            first = author.broadcast_nowait(b"also in time")
            last = author.broadcast_nowait(bytes(size), lifetime_s=0.01)
            author.broadcast_nowait(b"for ever", lifetime_s=float("inf"))
            assert (await reader.receive(20)).text == "also in time"
            assert (await reader.receive(20)).text == "for ever"
            assert numbers(missed) == list(range(first + 1, last + 1))
            assert reader.missed == last - first
            assert reader.unread == 0
            assert author.missed == 0

    play(main)


def test_a_message_in_time_is_in_time() -> None:
    async def main() -> None:
        async with joined(3, plain=False, signed=True) as (author, *readers):
            for number in range(50):
                await author.broadcast(b"%d" % number, priority=number % 4, lifetime_s=30 + number % 3)
            for reader in readers:
                assert [int((await reader.receive(20)).text) for _ in range(50)] == list(range(50))
                assert reader.missed == 0

    play(main)


class Behind(NamedTuple):
    """What became of it when the reader went on."""

    got: list[int]
    missed: list[int]
    mattered: set[int]
    culled: int
    last: int


async def fall_behind() -> Behind:
    """The reader takes nothing for a while, and then goes on. Of fifty messages ten matter."""
    async with joined(2, settings=SETTINGS, limits=weft.Limits(stall_s=30)) as (author, reader):
        missed = watched(reader)
        reader._node.stop_reading()
        mattered: set[int] = set()
        for number in range(COUNT):
            priority = Priority.LOW if number % 50 < 40 else Priority.HIGH
            sequence = author.broadcast_nowait(b"%08d" % number + bytes(SIZE), priority=priority)
            if priority is Priority.HIGH:
                mattered.add(sequence)
            if number % 20 == 0:
                await asyncio.sleep(0.001)
        reader._node.go_on_reading()
        async with asyncio.timeout(20):
            await reader._inbox.wait()
        last = author.broadcast_nowait(b"%08d" % COUNT + bytes(SIZE))
        got: list[int] = []
        while not got or got[-1] < last:
            message = await reader.receive(20)
            assert message.data == b"%08d" % (message.sequence - 1) + bytes(SIZE)
            got.append(message.sequence)
        return Behind(got, numbers(missed), mattered, author.status().counters["culled"], last)


def test_who_was_far_behind_gets_what_matters_in_order_and_is_told_of_the_rest() -> None:
    async def main() -> None:
        outcome = await fall_behind()
        assert outcome.got == sorted(set(outcome.got))
        assert outcome.mattered <= set(outcome.got)
        assert sorted(outcome.got + outcome.missed) == list(range(1, outcome.last + 1)), "got or told, and not both"
        assert outcome.culled > 0

    play(main)


def test_who_is_far_behind_is_spared_what_matters_least() -> None:
    async def main() -> None:
        outcome = await fall_behind()
        assert len(outcome.missed) == outcome.culled > 0

    play(main)
