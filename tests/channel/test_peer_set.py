"""Local peers that act as one: the merge alone, and real peers."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import broadloom
from broadloom.channel import peer_set as merge_module
from broadloom.channel.peer_set import PeerSetMerge
from broadloom.protocol.events import Batch, Message, Missed
from tests.channel.joined import QUICK, connected_channels, receive_texts
from tests.support import eventually

PRIMARY = 100


def make_batch(author: int, first: int, last: int) -> Batch:
    return Batch(author, first, tuple(b"%d of %d" % (each, author) for each in range(first, last + 1)), 1)


def make_message(author: int, sequence: int) -> Batch:
    return make_batch(author, sequence, sequence)


class MergedReceiver:
    def __init__(self) -> None:
        self.received: dict[int, list[int]] = {}
        self.missed: dict[int, list[int]] = {}
        self.merge = PeerSetMerge(PRIMARY, self._deliver, self._on_missed)

    def _deliver(self, batch: Batch) -> None:
        assert batch.first_sequence <= batch.last_sequence
        for message in batch:
            assert message == Message(
                message.author, message.sequence, b"%d of %d" % (message.sequence, message.author), 1
            )
            self.received.setdefault(message.author, []).append(message.sequence)

    def _on_missed(self, missed: Missed) -> None:
        assert missed.first_sequence <= missed.last_sequence
        self.missed.setdefault(missed.author, []).extend(range(missed.first_sequence, missed.last_sequence + 1))


# A stream is what one local peer reports about two authors: messages, and for the primary also missed ones.
RUNS = st.lists(st.tuples(st.sampled_from([1, 2]), st.booleans(), st.integers(1, 4)), max_size=12)


def primary_stream(
    data: st.DataObject, runs: list[tuple[int, bool, int]], starts: dict[int, int]
) -> list[Batch | Missed]:
    stream: list[Batch | Missed] = []
    at = dict(starts)
    for author, is_missed, count in runs:
        first, last = at[author] + 1, at[author] + count
        at[author] = last
        stream += [Missed(author, first, last)] if is_missed else split_into_batches(data, author, first, last)
    return stream


def split_into_batches(data: st.DataObject, author: int, first: int, last: int) -> list[Batch]:
    """Consecutive messages in batches of any size: each peer may get other batches."""
    batches = []
    while first <= last:
        end = data.draw(st.integers(first, last))
        batches.append(make_batch(author, first, end))
        first = end + 1
    return batches


@given(st.data(), RUNS, st.integers(1, 3))
def test_merge_delivers_each_message_once_in_order_for_any_interleaving(
    data: st.DataObject, runs: list[tuple[int, bool, int]], others: int
) -> None:
    starts = {author: data.draw(st.integers(0, 3), label=f"start of {author}") for author in (1, 2)}
    primary = primary_stream(data, runs, starts)
    last = {author: starts[author] + sum(count for name, _, count in runs if name == author) for author in (1, 2)}
    # A secondary joined later: it starts later, misses other messages, and may be ahead of the primary.
    streams: list[list[Batch | Missed]] = [primary]
    for _ in range(others):
        stream: list[Batch | Missed] = []
        for author in (1, 2):
            for batch in split_into_batches(data, author, starts[author] + 1, last[author]):
                if data.draw(st.booleans()):
                    stream.append(batch)
        streams.append(stream)
    application = MergedReceiver()
    position = [0] * len(streams)
    order = [number for number, stream in enumerate(streams) for _ in stream]
    for number in data.draw(st.permutations(order)):
        item = streams[number][position[number]]
        position[number] += 1
        if number > 0:
            assert isinstance(item, Batch)
            application.merge.on_secondary_batch(item)
        elif isinstance(item, Batch):
            application.merge.on_primary_batch(item)
        else:
            application.merge.on_primary_missed(item)
    for author in (1, 2):
        got, missed = application.received.get(author, []), application.missed.get(author, [])
        assert got == sorted(set(got)), "once, in order"
        assert not set(got) & set(missed), "got or missed, not both"
        assert sorted(got + missed) == list(range(starts[author] + 1, last[author] + 1)), "and all of it"
        had = {
            message.sequence
            for item in primary
            if isinstance(item, Batch) and item.author == author
            for message in item
        }
        assert had <= set(got)
    assert not any(held[0] in (1, 2) and held[1] > last[held[0]] for held in application.merge._held)


def test_messages_of_primary_are_ignored_from_secondaries() -> None:
    application = MergedReceiver()
    application.merge.on_secondary_batch(make_message(PRIMARY, 1))
    assert not application.received


def test_primary_recovers_from_unverified_claim() -> None:
    """The messages that it reported as missed were never sent."""
    application = MergedReceiver()
    application.merge.on_primary_batch(make_message(1, 1))
    application.merge.on_primary_missed(Missed(1, 2, 1000))
    for sequence in (2, 3, 4):
        application.merge.on_secondary_batch(make_message(1, sequence))
        application.merge.on_primary_batch(make_message(1, sequence))
        application.merge.on_secondary_batch(make_message(1, sequence))
    assert application.received == {1: [1, 2, 3, 4]}


def test_buffer_for_primary_peer_is_bounded() -> None:
    application = MergedReceiver()
    for sequence in range(2, 3 * merge_module.HELD_MAX):
        application.merge.on_secondary_batch(make_message(1, sequence))
    assert len(application.merge._held) <= merge_module.HELD_MAX
    for sequence in range(1, 3 * merge_module.HELD_MAX):
        application.merge.on_primary_batch(make_message(1, sequence))
    assert application.received[1] == list(range(1, 3 * merge_module.HELD_MAX))
    assert not application.merge._held


async def test_local_peers_act_as_one() -> None:
    async with connected_channels(2) as (other, more):
        async with broadloom.connect(other.name, tls=False, settings=QUICK, local_peers=3) as channel:
            assert len(channel.status().local_peers) == 2
            for number in range(100):
                await other.broadcast_text(f"{number}")
                await more.broadcast_text(f"{number}")
                await channel.broadcast_text(f"{number}")
            got: dict[int, list[str]] = {}
            for _ in range(200):
                message = await channel.receive(10)
                got.setdefault(message.author, []).append(message.text)
            numbers = [str(number) for number in range(100)]
            assert got == {other.peer_id: numbers, more.peer_id: numbers}
            heard = [await other.receive(10) for _ in range(200)]
            assert {message.author for message in heard} == {channel.peer_id, more.peer_id}
            await eventually(lambda: all(each.counters["delivered"] >= 200 for each in channel.status().local_peers))
            assert channel.unread_count == 0
        await other.broadcast_text("after")
        assert channel.receive_nowait() is None


async def test_last_message_arrives_when_local_peers_are_neighbors() -> None:
    for _ in range(3):
        async with connected_channels(1) as (other,):
            async with broadloom.connect(other.name, tls=False, settings=QUICK, local_peers=6) as channel:
                for number in range(20):
                    await channel.broadcast_text(str(number))
            assert await receive_texts(other, 20) == [str(number) for number in range(20)]
            await eventually(lambda other=other: not other.status().neighbors, timeout_s=5)  # type: ignore[misc]


async def test_local_peers_leave_gracefully() -> None:
    async with connected_channels(1) as (other,):
        ends: list[Any] = []
        other.on_event(lambda event: ends.append(event.reason) if isinstance(event, broadloom.LinkDown) else None)
        async with broadloom.connect(other.name, tls=False, settings=QUICK, local_peers=3):
            await eventually(lambda: len(other.status().neighbors) == 3)
        await asyncio.wait_for(eventually(lambda: len(ends) == 3), 5)
        assert {why.value for why in ends} == {"peer_left"}
