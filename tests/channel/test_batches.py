"""Messages that came together: read together, one by one, or in a mixture."""

import asyncio

import pytest

import weft
from tests.channel.joined import joined, texts
from tests.net.lines import each_loop, play, until
from weft import Batch, Channel, Message

BURST = 2000


def say(author: Channel, first: int, last: int) -> None:
    """In one turn of the loop, so that it goes out together."""
    for number in range(first, last + 1):
        assert author.broadcast_nowait(b"%d" % number) == number


async def collected(reader: Channel, count: int) -> list[Batch]:
    batches: list[Batch] = []
    async with asyncio.timeout(20):
        async for batch in reader.batches():
            batches.append(batch)
            if batch.last >= count:
                break
    return batches


@each_loop
def test_a_burst_comes_as_few_batches(loop: str) -> None:
    async def main() -> None:
        async with joined(3) as (author, *readers):
            say(author, 1, BURST)
            for reader in readers:
                batches = await collected(reader, BURST)
                assert len(batches) < 20
                assert {batch.author for batch in batches} == {author.peer}
                messages = [message for batch in batches for message in batch]
                assert [message.sequence for message in messages] == list(range(1, BURST + 1))
                assert [message.data for message in messages] == [b"%d" % number for number in range(1, BURST + 1)]
                assert sum(map(len, batches)) == BURST
                assert (reader.unread, reader.missed) == (0, 0)

    play(main, loop)


def test_who_waits_for_each_broadcast_speaks_in_batches_too() -> None:
    async def main() -> None:
        async with joined(2) as (author, reader):
            for number in range(1, BURST + 1):
                assert await author.broadcast(b"%d" % number) == number
            assert len(await collected(reader, BURST)) < BURST / 4

    play(main)


def test_a_message_by_itself_goes_out_at_once() -> None:
    async def main() -> None:
        slow = weft.Settings(seek_wait_s=0.1, linger_s=0.05, bundle_s=10)
        async with joined(2, settings=slow) as (author, reader):
            async with asyncio.timeout(9):
                for number in range(1, 6):
                    await author.broadcast(b"%d" % number)
                    (batch,) = await collected(reader, number)
                    assert (batch.first, batch.last, batch.data) == (number, number, (b"%d" % number,))

    play(main)


def test_all_ways_of_reading_may_be_mixed() -> None:
    async def main() -> None:
        async with joined(2) as (author, reader):
            say(author, 1, 10)
            await until(lambda: reader.unread == 10)
            got = [message.sequence for message in [reader.acquire(), await reader.receive(5)] if message is not None]
            async for message in reader:
                got.append(message.sequence)
                break
            assert got == [1, 2, 3]
            batches = reader.batches()
            rest = await anext(batches)
            assert (rest.first, rest.last, len(rest)) == (4, 10, 7)
            assert reader.unread == 0
            say(author, 11, 15)
            await until(lambda: reader.unread == 5)
            assert reader.acquire() is not None
            heard: list[int] = []
            reader.on_message(lambda message: heard.append(message.sequence))
            assert heard == [12, 13, 14, 15]
            say(author, 16, 20)
            await until(lambda: len(heard) == 9)
            together: list[Batch] = []
            reader.on_batch(together.append)
            say(author, 21, 30)
            await until(lambda: together)
            assert [(batch.first, batch.last) for batch in together] == [(21, 30)]
            reader.on_batch(None)
            say(author, 31, 33)
            assert await texts(reader, 3) == ["31", "32", "33"]
            await batches.aclose()

    play(main)


def test_a_callback_that_hands_over_in_the_middle_of_a_batch() -> None:
    async def main() -> None:
        async with joined(2) as (author, reader):
            say(author, 1, 4)
            await until(lambda: reader.unread == 4)
            say(author, 5, 8)
            await until(lambda: reader.unread == 8)
            first: list[int] = []
            second: list[int] = []

            def begin(message: Message) -> None:
                first.append(message.sequence)
                if message.sequence == 2:
                    reader.on_message(go_on)

            def go_on(message: Message) -> None:
                second.append(message.sequence)
                if message.sequence == 6:
                    reader.on_message(None)

            reader.on_message(begin)
            assert (first, second) == ([1, 2], [3, 4, 5, 6])
            assert reader.unread == 2
            message = reader.acquire()
            assert message is not None
            assert message.sequence == 7
            say(author, 9, 9)
            assert await texts(reader, 2) == ["8", "9"]

    play(main)


def test_several_readers_share_a_batch() -> None:
    async def main() -> None:
        async with joined(2) as (author, reader):
            reading = [asyncio.ensure_future(reader.receive(10)) for _ in range(5)]
            await asyncio.sleep(0)
            say(author, 1, 5)
            got = await asyncio.wait_for(asyncio.gather(*reading), 10)
            assert sorted(message.sequence for message in got) == [1, 2, 3, 4, 5]

    play(main)


def test_batches_end_with_the_channel_after_what_is_unread() -> None:
    async def main() -> None:
        async with joined(2) as (author, reader):
            say(author, 1, 5)
            await until(lambda: reader.unread == 5)
            await reader.leave()
            assert [len(batch) async for batch in reader.batches()] == [5]
            assert [len(batch) async for batch in reader.batches()] == []

    play(main)


def test_a_batch_that_is_too_much_loses_its_oldest_and_tells_which(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with joined(2, inbox_messages_max=100) as (author, reader):
            missed: list[weft.Missed] = []
            reader.on_event(lambda event: missed.append(event) if isinstance(event, weft.Missed) else None)
            say(author, 1, 500)
            await until(lambda: reader.status().counters["delivered"] == 500)
            batches = await collected(reader, 500)
            got = [message.sequence for batch in batches for message in batch]
            told = [number for each in missed for number in range(each.first, each.last + 1)]
            assert sorted(got + told) == list(range(1, 501))
            assert 50 < len(got) <= 100
            assert reader.missed == len(told)

    play(main)
    assert "messages missed by now" in caplog.text


def test_a_batch_by_itself() -> None:
    batch = Batch(7, 5, (b"five", b"six", b"seven"), 2)
    assert (batch.first, batch.last, len(batch)) == (5, 7, 3)
    assert list(batch) == [Message(7, 5, b"five", 2), Message(7, 6, b"six", 2), Message(7, 7, b"seven", 2)]
    assert batch.above(4) is batch
    assert list(batch.above(5)) == list(batch)[1:]
    assert list(batch.above(7)) == []
    assert list(Batch.of(Message(7, 5, b"five", 2))) == [Message(7, 5, b"five", 2)]
    assert repr(batch) == "Batch(0000000000000007, 5..7, 2 hops)"
