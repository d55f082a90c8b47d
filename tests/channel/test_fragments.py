"""Messages larger than one frame: whole or missed, never partial, and they do not delay others."""

import asyncio
import logging
import random
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import broadloom
from broadloom.channel import fragments
from broadloom.channel.fragments import FRAGMENT_BYTES, PARTIAL_MESSAGES_MAX, STALE_CHECKS, Reassembler, fragment
from broadloom.protocol import Tuning
from broadloom.protocol.events import Batch, Message, Missed
from broadloom.wire.broadcast_frame import Priority
from broadloom.wire.payload_kind import PayloadKind
from tests.channel.joined import QUICK, connected_channels
from tests.support import eventually
from tests.transport.connections import each_loop

MIB = 1 << 20


def random_bytes(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def missed_by(channel: broadloom.Channel) -> list[Missed]:
    missed: list[Missed] = []
    channel.on_event(lambda event: missed.append(event) if isinstance(event, Missed) else None)
    return missed


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL, "broadloom"):
        yield


MODES: dict[str, dict[str, Any]] = {"plain": {"tls": False}, "signed": {"tls": True, "signed": True}}


@pytest.mark.parametrize("mode", MODES)
async def test_messages_of_any_size_arrive_unchanged(mode: str) -> None:
    async with connected_channels(3, **MODES[mode]) as (author, *readers):
        sequence = 0
        for size in (
            FRAGMENT_BYTES - 1,
            FRAGMENT_BYTES,
            FRAGMENT_BYTES + 1,
            2 * FRAGMENT_BYTES,
            2 * FRAGMENT_BYTES + 1,
            7 * MIB + 3,
        ):
            data = random_bytes(size, size)
            sequence += -(-size // FRAGMENT_BYTES)
            assert await author.broadcast(data) == sequence
            for reader in readers:
                message = await reader.receive(20)
                assert message.data == data
                assert (message.author, message.sequence) == (author.peer_id, sequence)
                assert (message.kind, message.file) == (PayloadKind.DATA, None)
        assert not any(reader.missed_count or reader.unread_count for reader in readers)


@each_loop
async def test_broadcast_nowait_sends_many_mebibytes() -> None:
    async with connected_channels(2) as (author, reader):
        data = bytearray(random_bytes(20 * MIB))
        sequence = author.broadcast_nowait(memoryview(data))  # type: ignore[arg-type]
        assert sequence == 20 * MIB // FRAGMENT_BYTES
        author.broadcast_nowait(b"after it")
        message = await reader.receive(30)
        assert message.data == data
        assert message.sequence == sequence
        assert (await reader.receive(20)).text == "after it"
        assert reader.missed_count == 0


async def test_large_and_small_messages_of_two_authors_interleave() -> None:
    async with connected_channels(3) as (author, other, reader):
        wanted = [random_bytes(3 * MIB, 1), random_bytes(2 * MIB + 5, 2), random_bytes(3 * MIB + 1, 3)]
        sending = [
            asyncio.ensure_future(author.broadcast(wanted[0])),
            asyncio.ensure_future(author.broadcast(wanted[1])),
            asyncio.ensure_future(other.broadcast(wanted[2])),
        ]
        for number in range(100):
            for each in (author, other):
                await each.broadcast(b"%d" % number)
            await asyncio.sleep(0)
        sequences = await asyncio.gather(*sending)
        got = [await reader.receive(20) for _ in range(203)]
        for each in (author, other):
            mine = [message for message in got if message.author == each.peer_id]
            assert [message.sequence for message in mine] == sorted(message.sequence for message in mine)
            small = [message.data for message in mine if len(message.data) < 10]
            assert small == [b"%d" % number for number in range(100)]
        whole = {(message.author, message.sequence): message.data for message in got if len(message.data) >= 10}
        assert whole == {
            (who.peer_id, sequence): data
            for who, sequence, data in zip((author, author, other), sequences, wanted, strict=True)
        }
        assert reader.missed_count == 0


async def test_small_message_is_not_delayed_behind_large_message() -> None:
    async with connected_channels(3) as (author, other, reader):
        data = random_bytes(20 * MIB)
        order: list[str] = []
        waits: list[float] = []
        clock = asyncio.get_running_loop().time

        def heard(message: Message) -> None:
            is_large = len(message.data) > FRAGMENT_BYTES
            order.append("large" if is_large else "small")
            if not is_large:
                waits.append(clock() - float(message.text))

        reader.on_message(heard)
        sending = asyncio.ensure_future(author.broadcast(data))
        sent_count = 0
        while not sending.done() or not sent_count:
            for each in (author, other):
                each.broadcast_nowait(repr(clock()).encode())
                sent_count += 1
            await asyncio.sleep(0.002)
        await eventually(lambda: len(order) == sent_count + 1)
        assert sent_count >= 6
        assert order.index("large") >= sent_count - 4, "small messages sent meanwhile arrive first"
        waits.sort()
        assert waits[len(waits) // 2] < 0.5
        assert waits[-1] < 5


async def test_late_joiner_receives_no_partial_message() -> None:
    async with connected_channels(2) as (author, reader):
        data = random_bytes(10 * FRAGMENT_BYTES)
        parts = list(fragment(1000, data, PayloadKind.DATA))
        for part in parts[:5]:
            author._send(part, PayloadKind.FRAGMENT, Priority.NORMAL, 0)
        await eventually(lambda: reader.status().counters["delivered"] == 5)
        async with broadloom.connect(author.name, tls=False, settings=QUICK) as newcomer:
            missed = missed_by(newcomer)
            for part in parts[5:]:
                author._send(part, PayloadKind.FRAGMENT, Priority.NORMAL, 0)
            await author.broadcast(b"and then")
            await author.broadcast(data[::-1])
            assert (await reader.receive(20)).data == data
            for channel in (reader, newcomer):
                assert (await channel.receive(20)).text == "and then"
                assert (await channel.receive(20)).data == data[::-1]
                assert channel.unread_count == 0
            assert not missed
            assert len(newcomer._reassembler) == 0


async def test_message_over_reader_limit_is_reported_as_missed() -> None:
    async with connected_channels(1) as (author,):
        small = Tuning(discovery_retry_s=0.1, leave_linger_s=0.05, message_bytes_max=MIB)
        async with broadloom.connect(author.name, tls=False, settings=small) as reader:
            missed = missed_by(reader)
            sequence = await author.broadcast(random_bytes(MIB + 1))
            fits = random_bytes(MIB)
            await author.broadcast(fits)
            assert (await reader.receive(20)).data == fits
            assert missed == [Missed(author.peer_id, sequence, sequence)]
            assert reader.missed_count == 1
            assert reader._reassembler.held_bytes == 0


async def test_message_of_crashed_author_is_reported_as_missed_and_freed() -> None:
    quick = Tuning(discovery_retry_s=0.1, leave_linger_s=0.05, retention_s=1.0)
    async with connected_channels(3, settings=quick) as (author, *readers):
        missed = [missed_by(reader) for reader in readers]
        for part in list(fragment(1000, random_bytes(10 * FRAGMENT_BYTES), PayloadKind.DATA))[:5]:
            author._send(part, PayloadKind.FRAGMENT, Priority.NORMAL, 0)
        await eventually(lambda: all(reader._reassembler.held_bytes == 5 * FRAGMENT_BYTES for reader in readers))
        author.abort()
        await eventually(lambda: all(missed))
        assert missed == [[Missed(author.peer_id, 5, 5)]] * 2
        for reader in readers:
            assert reader.missed_count == 1
            assert (len(reader._reassembler), reader._reassembler.held_bytes) == (0, 0)
            assert reader._stale_check_timer is None


async def test_paused_reader_does_not_give_up_messages_that_wait_in_its_sockets() -> None:
    async with connected_channels(2) as (author, reader):
        data = random_bytes(3 * FRAGMENT_BYTES)
        first, *others = fragment(1000, data, PayloadKind.DATA)
        author._send(first, PayloadKind.FRAGMENT, Priority.NORMAL, 0)
        await eventually(lambda: len(reader._reassembler))
        reader._pause_sockets(True)
        for _ in range(2 * STALE_CHECKS):
            reader._check_stale()
        for part in others:
            author._send(part, PayloadKind.FRAGMENT, Priority.NORMAL, 0)
        reader._pause_sockets(False)
        assert (await reader.receive(20)).data == data
        assert reader.missed_count == 0


async def test_local_peers_reassemble_each_message_once() -> None:
    async with (
        connected_channels(2) as (author, _),
        broadloom.connect(author.name, tls=False, settings=QUICK, local_peers=3) as reader,
    ):
        for number in range(3):
            data = random_bytes(3 * MIB + number, number)
            await author.broadcast(data)
            assert (await reader.receive(20)).data == data
        back = random_bytes(2 * MIB)
        await reader.broadcast(back)
        assert (await author.receive(20)).data == back
        assert (reader.unread_count, reader.missed_count) == (0, 0)


async def test_leave_delivers_everything_sent_before() -> None:
    async with connected_channels(1) as (reader,):
        for number, size in enumerate((100_000, MIB, 6 * MIB, 20 * MIB)):
            data = random_bytes(size, number)
            async with broadloom.connect(reader.name, tls=False, settings=QUICK) as author:
                await author.broadcast(data)
            assert (await reader.receive(20)).data == data
        data = random_bytes(6 * MIB)
        async with broadloom.connect(reader.name, tls=False, settings=QUICK) as author:
            author.broadcast_nowait(data)
        assert (await reader.receive(20)).data == data


async def test_leave_delivers_large_message_to_slow_neighbor() -> None:
    async with connected_channels(1) as (reader,):
        data = random_bytes(20 * MIB)
        async with broadloom.connect(reader.name, tls=False, settings=QUICK) as author:
            author.broadcast_nowait(data)
        assert (await reader.receive(3)).data == data


# The reassembler alone.

SMALL_FRAGMENT_BYTES = 4
"""Fragment size in these tests."""


def small_fragments(number: int, data: bytes, kind: int = PayloadKind.DATA) -> list[bytes]:
    with patch.object(fragments, "FRAGMENT_BYTES", SMALL_FRAGMENT_BYTES):
        return list(fragment(number, data, kind))


class ReassemblyReader:
    def __init__(self, bytes_max: int = 1 << 30) -> None:
        self.missed: list[Missed] = []
        self.undelivered: list[tuple[int, int]] = []
        self.reassembler = Reassembler(
            bytes_max, self.missed.append, lambda author, sequence: self.undelivered.append((author, sequence))
        )
        self.received: list[Message] = []
        self.sequences: dict[int, int] = {}

    def feed(self, author: int, *fragments: bytes) -> None:
        """Consecutive fragments in one batch."""
        first = self.sequences.get(author, 0) + 1
        self.sequences[author] = first + len(fragments) - 1
        self.feed_at(author, first, *fragments)

    def feed_at(self, author: int, first: int, *fragments: bytes) -> None:
        for whole in self.reassembler.feed(Batch(author, first, fragments, 1, PayloadKind.FRAGMENT)):
            self.received += whole


STREAM = st.lists(
    st.tuples(st.integers(1, 2), st.integers(SMALL_FRAGMENT_BYTES + 1, 6 * SMALL_FRAGMENT_BYTES)), max_size=8
)


@given(st.data(), STREAM)
@settings(max_examples=300)
def test_reassembler_yields_only_whole_messages_for_any_losses(
    data: st.DataObject, stream: list[tuple[int, int]]
) -> None:
    """Messages of an author interleave; some fragments are lost, or were sent before the reader joined."""
    bodies = [(author, random_bytes(size, number)) for number, (author, size) in enumerate(stream)]
    parts = [small_fragments(number, body) for number, (_, body) in enumerate(bodies)]
    order = data.draw(st.permutations([number for number, each in enumerate(parts) for _ in each]))
    sequences = {1: 0, 2: 0}
    position = [0] * len(parts)
    came: dict[int, list[int]] = {number: [] for number in range(len(parts))}
    last: dict[int, int] = {}
    queue: list[tuple[int, int, bytes]] = []
    for number in order:
        author = bodies[number][0]
        sequences[author] += 1
        part, position[number] = position[number], position[number] + 1
        last[number] = sequences[author]
        if data.draw(st.integers(0, 9)) > 0:
            queue.append((author, sequences[author], parts[number][part]))
            came[number].append(part)
    reader = ReassemblyReader()
    while queue:  # in batches of any size, as long as they are consecutive
        count = 1
        while (
            count < len(queue) and queue[count][:2] == (queue[0][0], queue[0][1] + count) and data.draw(st.booleans())
        ):
            count += 1
        reader.feed_at(queue[0][0], queue[0][1], *(part for _, _, part in queue[:count]))
        del queue[:count]
    whole = {number for number, had in came.items() if had == list(range(len(parts[number])))}
    assert {(message.author, message.sequence, message.data) for message in reader.received} == {
        (bodies[number][0], last[number], bodies[number][1]) for number in whole
    }
    assert len(reader.received) == len(whole)
    torn = {
        number
        for number, had in came.items()
        if number not in whole and had and had[0] == 0 and had[-1] == len(parts[number]) - 1
    }
    assert sorted(reader.missed) == sorted(Missed(bodies[number][0], last[number], last[number]) for number in torn)
    ended = {number for number, had in came.items() if had and had[-1] == len(parts[number]) - 1}
    assert sorted(reader.undelivered) == sorted((bodies[number][0], last[number]) for number in ended - whole)
    is_open = {number for number, had in came.items() if had and had[0] == 0} - whole - torn
    assert len(reader.reassembler) == len(is_open)
    if not is_open:
        assert reader.reassembler.held_bytes == 0


@given(st.data(), STREAM, st.integers(SMALL_FRAGMENT_BYTES, 8 * SMALL_FRAGMENT_BYTES))
def test_message_is_whole_or_missed_within_any_limit(
    data: st.DataObject, stream: list[tuple[int, int]], bytes_max: int
) -> None:
    bodies = [random_bytes(size, number) for number, (_, size) in enumerate(stream)]
    parts = [small_fragments(number, body) for number, body in enumerate(bodies)]
    reader = ReassemblyReader(bytes_max)
    position = [0] * len(parts)
    last: dict[int, tuple[int, int]] = {}
    for number in data.draw(st.permutations([number for number, each in enumerate(parts) for _ in each])):
        author = stream[number][0]
        reader.feed(author, parts[number][position[number]])
        position[number] += 1
        last[number] = author, reader.sequences[author]
        assert 0 <= reader.reassembler.held_bytes <= 2 * bytes_max
    ends = {place: bodies[number] for number, place in last.items()}
    got = {(message.author, message.sequence): message.data for message in reader.received}
    missed = {(each.author, each.first_sequence) for each in reader.missed}
    assert all(ends[place] == body and len(body) <= bytes_max for place, body in got.items())
    assert set(got) | missed == set(ends)
    assert not set(got) & missed
    assert len(got) == len(reader.received)
    assert len(missed) == len(reader.missed)
    assert sorted(reader.undelivered) == sorted(missed)
    assert (len(reader.reassembler), reader.reassembler.held_bytes) == (0, 0)
    if sum(map(len, bodies)) <= 2 * bytes_max:
        assert all(len(body) > bytes_max for place, body in ends.items() if place in missed)


def test_stalest_partial_message_is_abandoned_and_reported() -> None:
    reader = ReassemblyReader()
    begun = [small_fragments(number, b"first" + b"%d" % number) for number in range(PARTIAL_MESSAGES_MAX + 1)]
    for parts in begun:
        reader.feed(7, parts[0])
    assert len(reader.reassembler) == PARTIAL_MESSAGES_MAX
    assert reader.missed == [Missed(7, 1, 1)]
    for parts in begun:
        reader.feed(7, *parts[1:])
    assert [message.data for message in reader.received] == [
        b"first%d" % number for number in range(1, PARTIAL_MESSAGES_MAX + 1)
    ]
    assert reader.missed == [Missed(7, 1, 1)]
    assert reader.undelivered == [(7, PARTIAL_MESSAGES_MAX + 2)], "where its last fragment came"
    assert reader.reassembler.held_bytes == 0


def test_author_with_most_partial_messages_loses_its_own() -> None:
    reader = ReassemblyReader()
    honest = small_fragments(1, b"of an honest author")
    reader.feed(8, *honest[:2])
    for number in range(3 * PARTIAL_MESSAGES_MAX):
        reader.feed(7, small_fragments(number, b"never ended")[0])
    reader.feed(8, *honest[2:])
    assert [message.data for message in reader.received] == [b"of an honest author"]
    assert {each.author for each in reader.missed} == {7}


def test_partial_message_of_crashed_author_makes_room() -> None:
    reader = ReassemblyReader(4 * SMALL_FRAGMENT_BYTES)
    reader.feed(7, *small_fragments(1, bytes(4 * SMALL_FRAGMENT_BYTES))[:3])
    for number in range(20):
        reader.feed(8, *small_fragments(number, bytes(3 * SMALL_FRAGMENT_BYTES)))
        first, second = (small_fragments(number + shift, bytes(4 * SMALL_FRAGMENT_BYTES)) for shift in (100, 200))
        for pair in zip(first, second, strict=True):
            reader.feed(9, *pair)
    assert len(reader.received) == 60
    assert not reader.missed, "its end may still come"
    reader.feed(7, *small_fragments(1, bytes(4 * SMALL_FRAGMENT_BYTES))[3:])
    assert reader.missed == [Missed(7, 4, 4)]


def test_message_without_new_fragments_is_abandoned_and_reported_once() -> None:
    reader = ReassemblyReader()
    stale, slow = small_fragments(1, b"never ended"), small_fragments(2, b"continued")
    reader.feed(7, *stale[:2])
    reader.feed(8, slow[0])
    for part in slow[1:]:
        for _ in range(STALE_CHECKS - 1):
            reader.reassembler.abandon_stale()
        reader.feed(8, part)
    assert [message.data for message in reader.received] == [b"continued"]
    assert reader.missed == [Missed(7, 2, 2)]
    assert (len(reader.reassembler), reader.reassembler.held_bytes) == (0, 0)
    reader.feed(7, *stale[2:])  # too late
    assert reader.missed == [Missed(7, 2, 2)]
    assert reader.undelivered == [(7, 3)]
    assert len(reader.reassembler) == 0


def test_restarted_message_is_reported_as_missed() -> None:
    reader = ReassemblyReader()
    reader.feed(7, *small_fragments(1, b"never ended")[:2])
    reader.feed(7, *small_fragments(1, b"the same number"))
    assert [message.data for message in reader.received] == [b"the same number"]
    assert reader.missed == [Missed(7, 2, 2)]
    assert reader.reassembler.held_bytes == 0


def test_malformed_fragments_are_ignored() -> None:
    reader = ReassemblyReader(100)
    for part in (b"", b"short", bytes(15), b"\xff" * 16, b"\0" * 4 + b"\xff" * 12 + b"data"):
        reader.feed(7, part)
    assert (len(reader.reassembler), reader.received, reader.missed) == (0, [], [])
    head = bytes(4)
    reader.feed(7, head + bytes(4) + b"\xff" * 4 + bytes(4))  # one of four billion fragments, all empty
    for number in range(1, 1000):
        reader.feed(7, head + number.to_bytes(4, "big") + b"\xff" * 4 + bytes(4))
    assert reader.reassembler.held_bytes == 0
    (under_way,) = reader.reassembler._partials.values()
    assert len(under_way.data) == 0
    reader.feed(8, *small_fragments(1, b"parts of parts", PayloadKind.FRAGMENT))
    assert not reader.received
    assert reader.missed == [Missed(8, 4, 4)]
