"""The overflow policies: drop the oldest, pause, leave."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

import broadloom
from broadloom import ChannelName, Missed
from broadloom.transport.limits import Limits, TcpTuning
from broadloom.wire import PeerId, encode
from broadloom.wire.exchange_messages import MAGIC, VERSION, DiscoverRequest, Hello
from tests.channel.joined import QUICK, connected_channels, unique_name
from tests.support import TIMEOUT_S, eventually


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL, "broadloom"):
        yield


async def test_drop_oldest_reports_exactly_the_dropped_messages() -> None:
    async with connected_channels(2, inbox_messages_max=50) as (author, reader):
        missed: list[Missed] = []
        reader.on_event(lambda event: missed.append(event) if isinstance(event, Missed) else None)
        got: list[int] = []
        for number in range(1, 501):
            await author.broadcast_text(str(number))
            if number % 90 == 0:
                await eventually(lambda number=number: reader.status().counters["delivered"] == number)  # type: ignore[misc]
                got += [(await reader.receive(1)).sequence for _ in range(5)]
        await eventually(lambda: reader.status().counters["delivered"] == 500)
        assert reader.unread_count <= 50
        while (message := reader.receive_nowait()) is not None:
            assert message.text == str(message.sequence)
            got.append(message.sequence)
        missed_numbers = [number for each in missed for number in range(each.first_sequence, each.last_sequence + 1)]
        assert all(each.author == author.peer_id for each in missed)
        assert sorted(got + missed_numbers) == list(range(1, 501))
        assert got == sorted(got)
        assert reader.missed_count == len(missed_numbers) > 0


async def test_inbox_is_bounded_in_bytes() -> None:
    async with connected_channels(2, inbox_bytes_max=10_000) as (author, reader):
        for _ in range(30):
            await author.broadcast(bytes(1000))
        await eventually(lambda: reader.status().counters["delivered"] == 30)
        assert reader.status().unread_bytes <= 10_000
        assert reader.missed_count + reader.unread_count == 30


async def test_pause_slows_author_and_loses_nothing() -> None:
    settings = TcpTuning(
        discovery_retry_s=0.1, leave_linger_s=0.05, limits=Limits(high_water_bytes=64 << 10, stall_timeout_s=30)
    )
    count, size = 600, 40_000

    async with connected_channels(2, overflow="pause", inbox_messages_max=20, settings=settings) as (
        author,
        reader,
    ):
        sent = 0

        async def send() -> None:
            nonlocal sent
            for number in range(count):
                await author.broadcast(b"%08d" % number + bytes(size))
                sent += 1

        sending = asyncio.ensure_future(send())
        await eventually(lambda: author._node.flow.must_wait)
        held = sent
        assert held < count, "the author waits"
        assert reader.unread_count < count / 2
        got = [int((await reader.receive(20)).data[:8]) for _ in range(count)]
        await sending
        assert got == list(range(count))
        assert reader.missed_count == 0
        assert not reader._node.peer.is_paused


async def test_exchange_in_progress_goes_on_while_reading_is_paused() -> None:
    name = unique_name()
    async with connected_channels(2, name=name, overflow="pause", inbox_messages_max=5) as (author, reader):
        node, address = reader._node, reader._node.peer.me.address
        connections = len(node._connections)
        incoming, outgoing = await asyncio.open_connection(address.host, address.port)
        await eventually(lambda: len(node._connections) > connections)
        for number in range(40):
            await author.broadcast_text(str(number))
        await eventually(lambda: node.peer.is_paused)
        hello = Hello(MAGIC, VERSION, ChannelName.parse(name).id, PeerId(1), address, False, False)
        outgoing.write(encode(hello) + encode(DiscoverRequest(False, 0, ())))
        async with asyncio.timeout(20):
            answer = await incoming.read(1 << 16)
        assert answer, "closed without an answer"
        outgoing.close()
        await outgoing.wait_closed()
        assert node.peer.is_paused


@pytest.mark.parametrize("peers", [1, 2])
async def test_paused_channel_can_leave(peers: int, caplog: pytest.LogCaptureFixture) -> None:
    async with connected_channels(2, overflow="pause", inbox_messages_max=5, local_peers=peers) as (author, reader):
        for number in range(40):
            await author.broadcast_text(str(number))
        await eventually(lambda: reader._node.peer.is_paused)
        for number in range(40, 80):
            await author.broadcast_text(str(number))
        with caplog.at_level(logging.WARNING, "broadloom"):
            await reader.leave()
        assert "left without an answer" not in caplog.text, "it reads the answers of its neighbors"
        got = [int(message.text) async for message in reader]
        assert got == list(range(len(got))), "the unread messages have no gaps"
        assert len(got) >= 5


async def test_author_that_leaves_waits_while_a_slow_reader_reads() -> None:
    limits = Limits(close_timeout_s=0.2)
    settings = TcpTuning(discovery_retry_s=0.1, unlink_timeout_s=0.2, heartbeat_s=0.1, tick_s=0.05, limits=limits)
    count = 1000
    async with connected_channels(2, overflow="pause", inbox_messages_max=20, settings=settings) as (author, reader):
        for number in range(count):
            author.broadcast_nowait(b"%08d" % number + bytes(2000))
        leaving = asyncio.ensure_future(author.leave())
        got = []
        for _ in range(count):
            got.append(int((await reader.receive(TIMEOUT_S)).data[:8]))
            await asyncio.sleep(0.001)
        await leaving
        assert got == list(range(count))


async def test_leave_policy_leaves_and_raises_inbox_overflow_error() -> None:
    async with connected_channels(2, overflow="leave", inbox_messages_max=10) as (author, reader):
        for number in range(40):
            await author.broadcast_text(str(number))
            await eventually(lambda: reader.has_overflowed or reader.unread_count > number)  # noqa: B023 - each by itself
        await eventually(lambda: reader.has_overflowed)
        with pytest.raises(broadloom.NotConnectedError, match="did not read in time"):
            await reader.broadcast(b"still here?")
        got: list[int] = []

        async def read() -> None:
            async for message in reader:
                got.append(int(message.text))

        with pytest.raises(broadloom.InboxOverflowError, match="did not read in time"):
            await read()
        assert got == list(range(11)), "up to the one that was too many, without gaps"
        for again in (reader.receive(1), read()):
            with pytest.raises(broadloom.InboxOverflowError):
                await again
        with pytest.raises(broadloom.InboxOverflowError):
            reader.receive_nowait()
        await eventually(lambda: reader.status().state == "left")
        assert author.is_connected


async def test_leave_policy_keeps_batches_whole() -> None:
    """A batch is kept whole, so that the unread messages have no gaps."""

    async with connected_channels(2, overflow="leave", inbox_messages_max=10) as (author, reader):
        author.broadcast_nowait(b"0")
        await eventually(lambda: reader.unread_count == 1)
        for number in range(1, 40):
            author.broadcast_nowait(b"%d" % number)
        await eventually(lambda: reader.has_overflowed)
        author.broadcast_nowait(b"too late")
        batches = [batch async for batch in _batches_until_overflow(reader)]
        assert [(batch.first_sequence, batch.last_sequence) for batch in batches] == [(1, 1), (2, 40)]
        with pytest.raises(broadloom.InboxOverflowError):
            reader.receive_nowait()


async def _batches_until_overflow(reader: broadloom.Channel) -> AsyncIterator[broadloom.Batch]:
    with suppress(broadloom.InboxOverflowError):
        async for batch in reader.batches():
            yield batch


async def test_channel_with_callback_never_overflows() -> None:
    async with connected_channels(2, overflow="leave", inbox_messages_max=1) as (author, reader):
        got: list[Any] = []
        reader.on_message(got.append)
        for number in range(50):
            await author.broadcast_text(str(number))
        await eventually(lambda: len(got) == 50)
        assert reader.is_connected


async def test_leave_delivers_what_slow_neighbors_were_to_pull(caplog: pytest.LogCaptureFixture) -> None:
    """Links with a long backlog become lazy. An author that left then took with it what nobody had pulled."""
    settings = replace(QUICK, straggler_timeout_s=0.0, backlog_lazy_bytes=1 << 20, gap_repair_delay_s=5.0)
    async with connected_channels(3, overflow="pause", inbox_messages_max=100, settings=settings) as members:
        author, *readers = members
        sent = 0
        while author.status().counters["links_switched_to_lazy"] < len(readers):
            for _ in range(100):
                sent = author.broadcast_nowait(bytes(1000))
            await asyncio.sleep(0)
        leaving = asyncio.create_task(author.leave())
        for reader in readers:
            for sequence in range(1, sent + 1):
                assert (await reader.receive(TIMEOUT_S)).sequence == sequence
        await leaving
    assert "slow neighbors" not in caplog.text
