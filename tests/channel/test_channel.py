"""`Channel`: receiving, callbacks and events."""

import asyncio
import logging
from contextlib import aclosing
from typing import Any

import pytest

import broadloom
from broadloom import Message, PeerState, StateChanged
from tests.channel.joined import QUICK, connected_channels, receive_texts
from tests.support import eventually
from tests.transport.connections import each_loop

# Reading.


@each_loop
async def test_iteration_reads_everything_and_ends_when_channel_is_left() -> None:
    async with connected_channels(2) as (author, reader):
        got: list[str] = []

        async def read() -> None:
            async for message in reader:
                assert message.author == author.peer_id
                got.append(message.text)

        reading = asyncio.ensure_future(read())
        for number in range(5):
            await author.broadcast_text(str(number))
        await eventually(lambda: len(got) == 5)
        await reader.leave()
        await asyncio.wait_for(reading, 5)
        assert got == list("01234")
        assert [message async for message in reader] == []


async def test_unread_messages_can_be_read_after_leave() -> None:
    async with connected_channels(2) as (author, reader):
        for number in range(3):
            await author.broadcast_text(str(number))
        await eventually(lambda: reader.unread_count == 3)
        await reader.leave()
        assert await receive_texts(reader, 2) == ["0", "1"]
        assert [message.text async for message in reader] == ["2"]
        with pytest.raises(broadloom.NotConnectedError, match="was left; connect again"):
            await reader.receive(1)
        assert reader.receive_nowait() is None


async def test_receive_raises_timeout_error_after_timeout_s() -> None:
    async with connected_channels(2) as (author, reader):
        assert reader.receive_nowait() is None
        for timeout_s in (0, 0.01, 0.05):
            with pytest.raises(TimeoutError):
                await reader.receive(timeout_s)
        await author.broadcast_text("now")
        await eventually(lambda: reader.unread_count)
        assert (await reader.receive(0)).text == "now"
        waiting = asyncio.ensure_future(reader.receive())
        await author.broadcast_text("later")
        assert (await asyncio.wait_for(waiting, 5)).text == "later"
        await author.broadcast_text("at once")
        await eventually(lambda: reader.unread_count)
        message = reader.receive_nowait()
        assert message is not None
        assert message.text == "at once"


async def test_concurrent_readers_get_each_message_once() -> None:
    async with connected_channels(2) as (author, reader):
        got: list[int] = []

        async def iterate() -> None:
            async for message in reader:
                got.append(int(message.text))

        async def impatient() -> None:
            while True:
                try:
                    got.append(int((await reader.receive(0.001)).text))
                except TimeoutError:
                    continue
                except broadloom.NotConnectedError:
                    return

        tasks = [asyncio.ensure_future(each()) for each in (iterate, iterate, impatient, impatient)]
        for number in range(300):
            await author.broadcast_text(str(number))
            if number % 7 == 0:
                await asyncio.sleep(0.001)
        await eventually(lambda: len(got) == 300)
        await reader.leave()
        await asyncio.wait_for(asyncio.gather(*tasks), 5)
        assert sorted(got) == list(range(300))


# Callbacks.


async def test_callback_gets_unread_and_new_messages() -> None:
    async with connected_channels(2) as (author, reader):
        await author.broadcast_text("before")
        await eventually(lambda: reader.unread_count)
        got: list[str] = []
        reader.on_message(lambda message: got.append(message.text))
        assert got == ["before"]
        await author.broadcast_text("after")
        await eventually(lambda: got == ["before", "after"])
        assert reader.unread_count == 0
        reader.on_message(None)
        await author.broadcast_text("kept")
        assert await receive_texts(reader, 1) == ["kept"]


async def test_callback_that_removes_itself_leaves_the_rest_unread() -> None:
    async with connected_channels(2) as (author, reader):
        for number in range(3):
            await author.broadcast_text(str(number))
        await eventually(lambda: reader.unread_count == 3)
        got: list[str] = []

        def once(message: Message) -> None:
            got.append(message.text)
            reader.on_message(None)

        reader.on_message(once)
        assert got == ["0"]
        assert await receive_texts(reader, 2) == ["1", "2"]


async def test_failing_callback_is_logged_and_channel_continues(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_item: object) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, "broadloom"):
        async with connected_channels(2) as (author, reader):
            events: list[Any] = []
            reader.on_event(fails)
            reader.on_event(events.append)
            await author.broadcast_text("waits")
            await eventually(lambda: reader.unread_count)
            reader.on_message(fails)
            for number in range(3):
                await author.broadcast_text(str(number))
            await eventually(lambda: reader.status().counters["delivered"] == 4)
            assert reader.is_connected
            assert reader.status().neighbors
            reader.on_message(None)
            await author.broadcast_text("well")
            assert await receive_texts(reader, 1) == ["well"]
            await reader.leave()
            assert StateChanged(PeerState.LEFT) in events
    logged = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert logged.count("the message callback failed") == 4
    assert "an event callback failed" in logged


# Events.


async def test_events_report_links_and_states_until_channel_is_left() -> None:
    async with connected_channels(1) as (first,):
        called: list[Any] = []
        first.on_event(called.append)
        iterated: list[Any] = []

        async def iterate() -> None:
            async for event in first.events():
                iterated.append(event)

        reading = asyncio.ensure_future(iterate())
        await asyncio.sleep(0)
        async with broadloom.connect(first.name, tls=False, settings=QUICK) as second:
            await eventually(lambda: any(isinstance(event, broadloom.LinkUp) for event in called))
        await eventually(lambda: any(isinstance(event, broadloom.LinkDown) for event in called))
        await first.leave()
        await asyncio.wait_for(reading, 5)
        assert called == iterated
        links = [event for event in called if isinstance(event, broadloom.LinkUp | broadloom.LinkDown)]
        assert [event.neighbor.peer_id for event in links] == [second.peer_id] * 2
        states = [event.state for event in called if isinstance(event, StateChanged)]
        assert states == [PeerState.LEAVING, PeerState.LEFT]
        assert [event async for event in first.events()] == []


async def test_abort_emits_left_once() -> None:
    async with connected_channels(1) as (channel,):
        called: list[Any] = []
        channel.on_event(called.append)
        channel.abort()
        channel.abort()
        await channel.leave()
        assert called == [StateChanged(PeerState.LEFT)]


async def test_event_callback_can_be_removed() -> None:
    async with connected_channels(1) as (channel,):
        called: list[Any] = []
        end = channel.on_event(called.append)
        end()
        end()
        await channel.leave()
        assert not called


async def test_message_callback_can_be_removed() -> None:
    async with connected_channels(2) as (author, reader):
        first: list[str] = []
        second: list[str] = []
        unsubscribe = reader.on_message(lambda message: first.append(message.text))
        await author.broadcast_text("one")
        await eventually(lambda: first == ["one"])
        unsubscribe_second = reader.on_message(lambda message: second.append(message.text))
        unsubscribe()  # replaced before: no effect
        await author.broadcast_text("two")
        await eventually(lambda: second == ["two"])
        unsubscribe_second()
        await author.broadcast_text("three")
        assert await receive_texts(reader, 1) == ["three"]
        assert first == ["one"]


# Conventions.


async def test_timeout_error_names_channel_and_condition() -> None:
    async with connected_channels(1) as (channel,):
        with pytest.raises(TimeoutError, match=f"{channel.name}: no message within 0.01 s"):
            await channel.receive(0.01)
        with pytest.raises(TimeoutError, match=f"{channel.name}: no other peer connected within 0.01 s"):
            await channel.wait_for_peers(0.01)


async def test_aclosing_leaves_channel() -> None:
    async with connected_channels(1) as (channel,):
        async with aclosing(channel):
            assert channel.is_connected
        assert channel.status().state == "left"


async def test_peer_ids_print_as_hex_everywhere() -> None:
    async with connected_channels(2) as (author, reader):
        links: list[Any] = []
        author.on_event(links.append)
        await author.broadcast_text("hello")
        message = await reader.receive(20)
        status = reader.status()
        ids = [message.author, author.peer_id, *(neighbor.peer_id for neighbor in status.neighbors)]
        await reader.leave()
        await eventually(lambda: any(isinstance(event, broadloom.LinkDown) for event in links))
        assert {str(peer_id) for peer_id in ids} == {f"{author.peer_id:016x}"}
        assert [str(event.neighbor.peer_id) for event in links if isinstance(event, broadloom.LinkDown)] == [
            f"{reader.peer_id:016x}"
        ]
        assert status.as_dict()["peer_id"] == str(reader.peer_id) == f"{reader.peer_id}"
        assert author.peer_id == int(str(author.peer_id), 16)
