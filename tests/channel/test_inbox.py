"""The inbox: bounded, and exact about what it drops."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.channel.inbox import Inbox
from broadloom.protocol.events import Batch, Message, Missed


def one_message_batch(author: int, sequence: int, size: int = 1) -> Batch:
    return Batch.from_message(Message(author, sequence, bytes(size), 1))


class DroppingInbox:
    """An inbox with the policy `drop_oldest`, which counts."""

    def __init__(self, messages_max: int, bytes_max: int = 1 << 30) -> None:
        self.missed: list[Missed] = []
        self.full_count = self.drained_count = 0
        self.inbox = Inbox(messages_max, bytes_max, on_full=self._on_full, on_drained=self._on_drained)
        self.drops = True

    def _on_full(self) -> None:
        self.full_count += 1
        if self.drops:
            self.missed += self.inbox.drop_oldest()

    def _on_drained(self) -> None:
        self.drained_count += 1

    def read(self) -> list[tuple[int, int]]:
        names = []
        while (message := self.inbox.take()) is not None:
            names.append((message.author, message.sequence))
        return names

    def missed_ids(self) -> list[tuple[int, int]]:
        return [
            (each.author, number)
            for each in self.missed
            for number in range(each.first_sequence, each.last_sequence + 1)
        ]


OPERATION = st.sampled_from(["put", "put", "put", "put", "take", "take batch", "put back", "gap"])
STEPS = st.lists(st.tuples(OPERATION, st.integers(1, 3), st.lists(st.integers(0, 60), min_size=1, max_size=5)))


@given(STEPS, st.integers(1, 20), st.integers(1, 200))
def test_message_is_either_read_or_reported_as_missed(
    steps: list[tuple[str, int, list[int]]], messages_max: int, bytes_max: int
) -> None:
    reader = DroppingInbox(messages_max, bytes_max)
    arrived: list[tuple[int, int]] = []
    got: list[tuple[int, int]] = []
    sequences = {1: 0, 2: 0, 3: 0}
    for what, author, sizes in steps:
        if what == "put":
            first = sequences[author] + 1
            sequences[author] += len(sizes)
            arrived += [(author, sequence) for sequence in range(first, sequences[author] + 1)]
            reader.inbox.put(Batch(author, first, tuple(map(bytes, sizes)), 1))
        elif what == "gap":
            sequences[author] += 2  # already reported as missed
        elif what == "take":
            if (message := reader.inbox.take()) is not None:
                got.append((message.author, message.sequence))
        elif (batch := reader.inbox.take_batch()) is not None:
            read = len(batch) if what == "take batch" else min(len(sizes) - 1, len(batch))
            got += [(message.author, message.sequence) for message in list(batch)[:read]]
            reader.inbox.push_front(batch.after(batch.first_sequence + read - 1))
        assert len(reader.inbox) <= messages_max
        assert reader.inbox.held_bytes <= bytes_max
    got += reader.read()
    missed = reader.missed_ids()
    assert sorted(got + missed) == sorted(arrived)
    for author in sequences:
        mine = [sequence for name, sequence in got if name == author]
        assert mine == sorted(mine)
    assert reader.inbox.held_bytes == 0


def test_full_inbox_drops_a_share_at_once() -> None:
    reader = DroppingInbox(800)
    for number in range(1, 802):
        reader.inbox.put(one_message_batch(1, number))
    assert reader.full_count == 1
    assert reader.missed == [Missed(1, 1, 100)]


def test_large_message_drops_as_many_bytes_as_it_needs() -> None:
    reader = DroppingInbox(10_000, 1000)
    for number in range(1, 1001):
        reader.inbox.put(one_message_batch(1, number))
    reader.inbox.put(one_message_batch(2, 1, 900))
    assert reader.inbox.held_bytes <= 1000
    assert reader.missed_ids() == [(1, number) for number in range(1, 901)]


def test_drained_callback_is_called_when_half_is_read() -> None:
    reader = DroppingInbox(10)
    reader.drops = False
    for number in range(1, 13):
        reader.inbox.put(one_message_batch(1, number))
    assert reader.full_count == 2
    assert reader.inbox.is_full
    for _ in range(6):
        reader.inbox.take()
    assert reader.drained_count == 0
    reader.inbox.take()
    assert reader.drained_count == 1
    assert not reader.inbox.is_full
    reader.read()
    assert reader.drained_count == 1


async def test_cancelled_reader_passes_wakeup_on() -> None:
    reader = DroppingInbox(10)
    first, second = [asyncio.ensure_future(reader.inbox.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    reader.inbox.put(one_message_batch(1, 1))
    first.cancel()
    await asyncio.wait([first, second], timeout=5)
    assert first.cancelled()
    assert second.done()
    assert not second.cancelled()


async def test_batch_wakes_every_reader_it_has_messages_for() -> None:
    reader = DroppingInbox(10)
    got: list[int] = []

    async def read_one() -> None:
        while (message := reader.inbox.take()) is None:
            await reader.inbox.wait()
        got.append(message.sequence)

    reading = [asyncio.ensure_future(read_one()) for _ in range(4)]
    await asyncio.sleep(0)
    reader.inbox.put(Batch(1, 1, (b"1", b"2", b"3"), 1))
    reader.inbox.put(one_message_batch(1, 4))
    await asyncio.wait_for(asyncio.gather(*reading), 5)
    assert sorted(got) == [1, 2, 3, 4]


async def test_close_wakes_all_readers() -> None:
    reader = DroppingInbox(10)
    waiting = [asyncio.ensure_future(reader.inbox.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    reader.inbox.close()
    await asyncio.wait_for(asyncio.gather(*waiting), 5)
    await asyncio.wait_for(reader.inbox.wait(), 5)


@pytest.mark.parametrize("count", [1, 5])
async def test_one_message_wakes_one_reader(count: int) -> None:
    reader = DroppingInbox(10)
    waiting = [asyncio.ensure_future(reader.inbox.wait()) for _ in range(count + 1)]
    await asyncio.sleep(0)
    for number in range(count):
        reader.inbox.put(one_message_batch(1, number + 1))
    woken = [waiter for waiter in reader.inbox._waiters if waiter.done()]
    assert not woken
    assert len(reader.inbox._waiters) == 1
    reader.inbox.close()
    await asyncio.gather(*waiting)
