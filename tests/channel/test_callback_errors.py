"""A callback that raises `CancelledError`, for example by reading the result of a canceled future, fails like any
other: the error is logged, nothing else is lost, and links stay up."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broadloom import Channel, LinkDown, Missed, RefusedError, StateUnavailableError, SubscriptionOverflow
from broadloom.mailboxes import Mailboxes
from broadloom.switch import RequestFailedError, Switch
from tests.channel.joined import connected_channels
from tests.support import TIMEOUT_S, eventually

COUNT = 30
FAILS_AT = 3

Callback = Callable[[Any], None]
Case = Callable[[Channel, Channel, Callback], Awaitable[None]]
"""Passes `COUNT` items from the first channel to a callback of the second."""


def raise_canceled() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    future.result()


def raise_generator_exit() -> None:
    raise GeneratorExit


async def on_message(author: Channel, reader: Channel, callback: Callback) -> None:
    reader.on_message(callback)
    for number in range(COUNT):
        author.broadcast_nowait(str(number).encode())
    await reached(reader, COUNT)


async def on_message_with_unread_ones(author: Channel, reader: Channel, callback: Callback) -> None:
    for number in range(COUNT):
        author.broadcast_nowait(str(number).encode())
    await reached(reader, COUNT)
    reader.on_message(callback)


async def on_batch(author: Channel, reader: Channel, callback: Callback) -> None:
    reader.on_batch(callback)
    for number in range(COUNT):
        await author.broadcast(str(number).encode())
        await reached(reader, number + 1)


async def layer(author: Channel, reader: Channel, callback: Callback) -> None:
    sender = author.layer("Zz")
    reader.layer("Zz", on_batch=callback)
    for number in range(COUNT):
        await sender.broadcast(str(number).encode())
        await reached(reader, number + 1)


async def letters(author: Channel, reader: Channel, callback: Callback) -> None:
    async with Mailboxes(author, "anna") as anna, Mailboxes(reader, "ben") as ben:
        await ben.bind("q", 3, then=callback)
        for number in range(COUNT):
            await anna.post(reader.peer_id, "q", str(number).encode())


async def posted(author: Channel, reader: Channel, callback: Callback) -> None:
    async with Mailboxes(author, "anna") as anna, Mailboxes(reader, "ben") as ben:
        box = await anna.bind("q", 3)
        for number in range(COUNT):
            await ben.post(author.peer_id, "q", str(number).encode(), ack="each", then=callback)
        await eventually(lambda: box.unread_count == COUNT, "all letters have arrived")
        await ben.post(author.peer_id, "q", b"", timeout_s=TIMEOUT_S)  # acknowledged after the others


async def observer(author: Channel, reader: Channel, callback: Callback) -> None:
    async with Switch(author, session="anna") as sender, Switch(reader, session="anna") as program:
        program.observe("paint", callback, state="sent")
        await eventually(lambda: len(sender.channel.members()) == 2)
        handled = 0

        @program.handle("paint")
        def paint(_request: object) -> bytes:
            nonlocal handled
            handled += 1
            return b""

        await sender.wait_for_handler("paint", timeout_s=TIMEOUT_S)
        for _ in range(COUNT):
            await sender.request("paint", b"", timeout_s=TIMEOUT_S)
        assert handled == COUNT


async def switch_handler(author: Channel, reader: Channel, callback: Callback) -> None:
    async with Switch(author, session="anna") as sender, Switch(reader, session="anna") as program:

        @program.handle("paint")
        def paint(request: object) -> bytes:
            callback(request)
            return b"done"

        await sender.wait_for_handler("paint", timeout_s=TIMEOUT_S)
        for number in range(COUNT):
            if number == FAILS_AT:
                with pytest.raises(RequestFailedError, match="the handler raised"):
                    await sender.request("paint", b"", timeout_s=TIMEOUT_S)
            else:
                assert (await sender.request("paint", b"", timeout_s=TIMEOUT_S)).data == b"done"


async def request_handler(author: Channel, reader: Channel, callback: Callback) -> None:
    def handle(request: object) -> bytes:
        callback(request)
        return b"done"

    reader.on_request(handle)
    for number in range(COUNT):
        if number == FAILS_AT:
            with pytest.raises(RefusedError, match="the handler raised"):
                await author.request(reader.peer_id, b"", timeout_s=TIMEOUT_S)
        else:
            assert (await author.request(reader.peer_id, b"", timeout_s=TIMEOUT_S)).data == b"done"


async def events(_author: Channel, reader: Channel, callback: Callback) -> None:
    reader.on_event(callback)
    for number in range(COUNT):
        reader._emit(SubscriptionOverflow(None, reader.peer_id, number, number))


async def reached(reader: Channel, count: int) -> None:
    await eventually(lambda: reader.status().counters["delivered"] >= count, f"{count} messages are delivered")


CASES = (
    on_message,
    on_message_with_unread_ones,
    on_batch,
    layer,
    letters,
    posted,
    observer,
    switch_handler,
    request_handler,
    events,
)


@pytest.mark.parametrize("fail", [raise_canceled, raise_generator_exit])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_callback_that_raises_a_base_exception_loses_nothing(
    case: Case, fail: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    def callback(_item: object) -> None:
        nonlocal calls
        calls += 1
        if calls == FAILS_AT + 1:
            fail()

    with caplog.at_level(logging.ERROR, "broadloom"):
        async with connected_channels(2) as (author, reader):
            seen: list[Any] = []
            reader.on_event(seen.append)
            await case(author, reader, callback)
            await eventually(lambda: calls == COUNT, lambda: f"{COUNT} calls, {calls} so far")
            assert reader.status().neighbors
            assert author.status().neighbors
            assert not any(isinstance(event, Missed | LinkDown) for event in seen)
    assert [(record.name, "failed" in record.getMessage()) for record in caplog.records] == [("broadloom", True)]


async def test_state_whose_maker_raises_cancelled_error_is_refused() -> None:
    async with connected_channels(2) as (newcomer, helper):
        helper.on_state("score", raise_canceled, reader=helper.subscribe())  # type: ignore[arg-type]
        with pytest.raises(StateUnavailableError) as caught:
            await newcomer.fetch_state("score", reader=newcomer.subscribe(), timeout_s=2)
        assert "RuntimeError" in caught.value.reasons[helper.peer_id]
        assert helper.status().neighbors


async def test_keyboard_interrupt_in_a_callback_is_not_caught() -> None:
    def interrupt(_message: object) -> None:
        raise KeyboardInterrupt

    async with connected_channels(2) as (author, reader):
        author.broadcast_nowait(b"waits")
        await eventually(lambda: reader.unread_count)
        with pytest.raises(KeyboardInterrupt):
            reader.on_message(interrupt)
