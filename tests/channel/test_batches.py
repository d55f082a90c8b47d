"""Batches: messages that arrived together, read together, one by one, or both."""

import asyncio

import pytest

import broadloom
from broadloom import Batch, Channel, Message
from broadloom.protocol import Tuning
from tests.channel.joined import connected_channels, receive_texts
from tests.support import eventually
from tests.transport.connections import each_loop

BURST = 2000


def broadcast_range(author: Channel, first: int, last: int) -> None:
    """In one iteration of the event loop, so that they go out together."""
    for number in range(first, last + 1):
        assert author.broadcast_nowait(b"%d" % number) == number


async def collect_batches(reader: Channel, count: int) -> list[Batch]:
    batches: list[Batch] = []
    async with asyncio.timeout(20):
        async for batch in reader.batches():
            batches.append(batch)
            if batch.last_sequence >= count:
                break
    return batches


@each_loop
async def test_burst_arrives_in_few_batches() -> None:
    async with connected_channels(3) as (author, *readers):
        broadcast_range(author, 1, BURST)
        for reader in readers:
            batches = await collect_batches(reader, BURST)
            assert len(batches) < 20
            assert {batch.author for batch in batches} == {author.peer_id}
            messages = [message for batch in batches for message in batch]
            assert [message.sequence for message in messages] == list(range(1, BURST + 1))
            assert [message.data for message in messages] == [b"%d" % number for number in range(1, BURST + 1)]
            assert sum(map(len, batches)) == BURST
            assert (reader.unread_count, reader.missed_count) == (0, 0)


async def test_awaited_broadcasts_are_batched_too() -> None:
    async with connected_channels(2) as (author, reader):
        for number in range(1, BURST + 1):
            assert await author.broadcast(b"%d" % number) == number
        assert len(await collect_batches(reader, BURST)) < BURST / 4


async def test_single_messages_do_not_wait_for_others() -> None:
    slow = Tuning(discovery_retry_s=0.1, leave_linger_s=0.05, bundle_linger_s=10)
    async with connected_channels(2, settings=slow) as (author, reader):
        async with asyncio.timeout(9):
            for number in range(1, 6):
                await author.broadcast(b"%d" % number)
                (batch,) = await collect_batches(reader, number)
                assert (batch.first_sequence, batch.last_sequence, batch.data) == (
                    number,
                    number,
                    (b"%d" % number,),
                )


async def test_ways_of_reading_may_be_mixed() -> None:
    async with connected_channels(2) as (author, reader):
        broadcast_range(author, 1, 10)
        await eventually(lambda: reader.unread_count == 10)
        got = [
            message.sequence for message in [reader.receive_nowait(), await reader.receive(5)] if message is not None
        ]
        async for message in reader:
            got.append(message.sequence)
            break
        assert got == [1, 2, 3]
        batches = reader.batches()
        rest = await anext(batches)
        assert (rest.first_sequence, rest.last_sequence, len(rest)) == (4, 10, 7)
        assert reader.unread_count == 0
        broadcast_range(author, 11, 15)
        await eventually(lambda: reader.unread_count == 5)
        assert reader.receive_nowait() is not None
        heard: list[int] = []
        reader.on_message(lambda message: heard.append(message.sequence))
        assert heard == [12, 13, 14, 15]
        broadcast_range(author, 16, 20)
        await eventually(lambda: len(heard) == 9)
        together: list[Batch] = []
        reader.on_batch(together.append)
        broadcast_range(author, 21, 30)
        await eventually(lambda: sum(map(len, together)) == 10)
        assert [message.sequence for batch in together for message in batch] == list(range(21, 31))
        assert len(together) <= 2, "the first message is sent at once after a pause, the others together"
        reader.on_batch(None)
        broadcast_range(author, 31, 33)
        assert await receive_texts(reader, 3) == ["31", "32", "33"]
        await batches.aclose()


async def test_callback_replaced_within_batch_passes_on_the_rest() -> None:
    async with connected_channels(2) as (author, reader):
        broadcast_range(author, 1, 4)
        await eventually(lambda: reader.unread_count == 4)
        broadcast_range(author, 5, 8)
        await eventually(lambda: reader.unread_count == 8)
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
        assert reader.unread_count == 2
        message = reader.receive_nowait()
        assert message is not None
        assert message.sequence == 7
        broadcast_range(author, 9, 9)
        assert await receive_texts(reader, 2) == ["8", "9"]


async def test_readers_share_a_batch() -> None:
    async with connected_channels(2) as (author, reader):
        reading = [asyncio.ensure_future(reader.receive(10)) for _ in range(5)]
        await asyncio.sleep(0)
        broadcast_range(author, 1, 5)
        got = await asyncio.wait_for(asyncio.gather(*reading), 10)
        assert sorted(message.sequence for message in got) == [1, 2, 3, 4, 5]


async def test_batches_yields_unread_messages_then_ends_after_leave() -> None:
    async with connected_channels(2) as (author, reader):
        broadcast_range(author, 1, 5)
        await eventually(lambda: reader.unread_count == 5)
        await reader.leave()
        assert sum([len(batch) async for batch in reader.batches()]) == 5
        assert [len(batch) async for batch in reader.batches()] == []


async def test_batch_over_inbox_limit_reports_its_oldest_messages_as_missed(caplog: pytest.LogCaptureFixture) -> None:
    async with connected_channels(2, inbox_messages_max=100) as (author, reader):
        missed: list[broadloom.Missed] = []
        reader.on_event(lambda event: missed.append(event) if isinstance(event, broadloom.Missed) else None)
        broadcast_range(author, 1, 500)
        await eventually(lambda: reader.status().counters["delivered"] == 500)
        batches = await collect_batches(reader, 500)
        got = [message.sequence for batch in batches for message in batch]
        missed_numbers = [number for each in missed for number in range(each.first_sequence, each.last_sequence + 1)]
        assert sorted(got + missed_numbers) == list(range(1, 501))
        assert 50 < len(got) <= 100
        assert reader.missed_count == len(missed_numbers)
    assert "messages missed so far" in caplog.text


def test_batch_slices_and_iterates() -> None:
    batch = Batch(7, 5, (b"five", b"six", b"seven"), 2)
    assert (batch.first_sequence, batch.last_sequence, len(batch)) == (5, 7, 3)
    assert list(batch) == [Message(7, 5, b"five", 2), Message(7, 6, b"six", 2), Message(7, 7, b"seven", 2)]
    assert batch.after(4) is batch
    assert list(batch.after(5)) == list(batch)[1:]
    assert list(batch.after(7)) == []
    assert list(Batch.from_message(Message(7, 5, b"five", 2))) == [Message(7, 5, b"five", 2)]
    assert repr(batch) == "Batch(0000000000000007, 5..7, 2 hops)"
