"""A channel that the program loses leaves by itself; one that is used in the wrong place raises."""

import asyncio
import gc
import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import broadloom
import broadloom.sync
from broadloom import Authority, ChannelCard, SignedCard
from broadloom.groups import Groups
from tests.channel.joined import QUICK, connected_channels, unique_name
from tests.support import TIMEOUT_S, eventually, wait_until
from tests.transport.connections import each_loop


@each_loop
@pytest.mark.parametrize("local_peers", [1, 2])
async def test_lost_channel_warns_and_leaves(local_peers: int) -> None:
    name = unique_name()
    async with connected_channels(1, name=name) as (other,):
        lost = await broadloom.connect(name, tls=False, settings=QUICK, local_peers=local_peers)
        await eventually(lambda: len(other.status().neighbors) == local_peers)
        with pytest.warns(ResourceWarning, match=f"{name} was never left"):
            del lost
        await eventually(lambda: not other.status().neighbors)


async def test_channel_with_a_callback_stays_until_it_is_removed() -> None:
    name = unique_name()
    async with connected_channels(1, name=name) as (other,):
        received: list[bytes] = []

        async def start() -> Callable[[], None]:
            channel = await broadloom.connect(name, tls=False, settings=QUICK)
            return channel.on_message(lambda message: received.append(message.data))

        unsubscribe = await start()
        gc.collect()
        await other.broadcast(b"still here")
        await eventually(lambda: received == [b"still here"])
        unsubscribe()
        del unsubscribe  # the callback is part of a reference cycle
        with pytest.warns(ResourceWarning, match="was never left"):
            gc.collect()
        await eventually(lambda: not other.status().neighbors)


async def test_left_channel_does_not_warn() -> None:
    channel = await broadloom.connect(unique_name(), tls=False, settings=QUICK)
    await channel.leave()
    del channel
    gc.collect()


def test_lost_synchronous_channel_warns_and_leaves() -> None:
    name = unique_name()
    with broadloom.sync.connect(name, tls=False, settings=QUICK) as other:
        lost = broadloom.sync.connect(name, tls=False, settings=QUICK)
        wait_until(lambda: len(other.status().neighbors) == 1)
        with pytest.warns(ResourceWarning, match="was never left"):
            del lost
        wait_until(lambda: not other.status().neighbors)


def test_program_that_ends_without_leaving_prints_only_the_warning() -> None:
    program = f"""
import asyncio, broadloom

async def main():
    channel = await broadloom.connect({unique_name()!r}, tls=False)

asyncio.run(main())
"""
    command = [sys.executable, "-W", "error::DeprecationWarning", "-W", "default::ResourceWarning", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert "was never left" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Task was destroyed" not in result.stderr


# -- loops and threads


def all_calls(channel: broadloom.Channel, reader: broadloom.Subscription) -> dict[str, list[Callable[[], Any]]]:
    """Calls of every method that belongs to the loop."""
    member = broadloom.PeerId(1)
    return {
        "abort": [channel.abort],
        "aclose": [channel.aclose],
        "advert": [lambda: channel.advert("an ad")],
        "batches": [lambda: anext(channel.batches())],
        "broadcast": [
            lambda: channel.broadcast(b"x"),
            lambda: channel.broadcast(bytes(100_000)),
            lambda: channel.broadcast(b"x", receipt="all", timeout_s=0.1),
        ],
        "broadcast_file": [lambda: channel.broadcast_file(__file__)],
        "broadcast_json": [lambda: channel.broadcast_json({})],
        "broadcast_nowait": [lambda: channel.broadcast_nowait(b"x"), lambda: channel.broadcast_nowait(bytes(100_000))],
        "broadcast_text": [lambda: channel.broadcast_text("x")],
        "close_channel": [channel.close_channel],
        "display_name": [lambda: channel.display_name(member)],
        "events": [lambda: anext(channel.events())],
        "fetch_state": [lambda: channel.fetch_state("log", reader=reader, timeout_s=0.1)],
        "identify": [channel.identify],
        "identity": [lambda: channel.identity(member)],
        "layer": [lambda: channel.layer("zz")],
        "leave": [channel.leave],
        "member": [lambda: channel.member(member)],
        "members": [channel.members],
        "on_batch": [lambda: channel.on_batch(print)],
        "on_event": [lambda: channel.on_event(print)],
        "on_message": [lambda: channel.on_message(print)],
        "on_request": [lambda: channel.on_request(lambda request: request.data), lambda: channel.on_request(None)],
        "on_state": [lambda: channel.on_state("log", lambda: b"", reader=reader)],
        "publish": [lambda: channel.publish(SignedCard.sign(Authority.generate(), ChannelCard(channel.name)))],
        "receive": [lambda: channel.receive(0.1), lambda: anext(channel.__aiter__())],
        "receive_nowait": [channel.receive_nowait],
        "request": [lambda: channel.request(member, b"x", timeout_s=0.1)],
        "set_bootstrap": [lambda: channel.set_bootstrap(["127.0.0.1"])],
        "status": [channel.status],
        "subscribe": [channel.subscribe],
        "tell": [lambda: channel.tell(member, b"x", timeout_s=0.1)],
        "wait_for_peers": [lambda: channel.wait_for_peers(0.1)],
        "wait_for_roster": [lambda: channel.wait_for_roster(0.1)],
        "Groups": [lambda: Groups(channel, "Anna")],
        "Subscription": [lambda: reader.receive(0.1), reader.receive_nowait, reader.close],
    }


async def call_everything(channel: broadloom.Channel, reader: broadloom.Subscription) -> None:
    """Every method raises an error here."""
    for calls in all_calls(channel, reader).values():
        for call in calls:
            with pytest.raises(RuntimeError, match="belongs to the event loop and thread that joined it"):
                await call()


async def test_every_public_method_is_called_from_elsewhere_by_these_tests() -> None:
    async with connected_channels(1) as (channel,):
        public = {name for name in dir(channel) if not name.startswith("_")}
        methods = {name for name in public if callable(getattr(broadloom.Channel, name, None))}
        assert methods == methods & all_calls(channel, channel.subscribe()).keys()


async def test_use_in_another_loop_or_thread_raises_runtime_error() -> None:
    async with connected_channels(2) as (author, reader):
        await asyncio.to_thread(asyncio.run, call_everything(author, author.subscribe("a")))
        with pytest.raises(RuntimeError, match="call_soon_threadsafe"):
            await asyncio.to_thread(author.broadcast_nowait, b"from a thread")
        await author.broadcast(b"at home")
        assert (await reader.receive(TIMEOUT_S)).data == b"at home"
        assert reader.unread_count == 0
        assert author.is_connected
        assert reader.is_connected, "the channel was not closed"


def test_use_in_a_second_loop_of_the_same_thread_raises_runtime_error() -> None:
    loop, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        channel = loop.run_until_complete(_connect(unique_name()))
        second.run_until_complete(call_everything(channel, channel.subscribe("a")))
        assert channel.is_connected
        loop.run_until_complete(channel.leave())
    finally:
        loop.close()
        second.close()


def test_channel_can_be_used_between_two_runs_of_its_loop() -> None:
    loop = asyncio.new_event_loop()
    try:
        name = unique_name()
        one = loop.run_until_complete(_connect(name))
        other = loop.run_until_complete(_connect(name))
        one.broadcast_nowait(b"later")
        assert loop.run_until_complete(other.receive(TIMEOUT_S)).data == b"later"
        loop.run_until_complete(one.leave())
        loop.run_until_complete(other.leave())
    finally:
        loop.close()


async def _connect(name: str) -> broadloom.Channel:
    return await broadloom.connect(name, tls=False, settings=QUICK)


# -- arguments


@pytest.mark.parametrize("method", ["on_message", "on_batch", "on_event"])
async def test_callback_of_wrong_type_raises_at_once(method: str) -> None:
    async def coroutine_function(_item: object) -> None: ...

    async with connected_channels(1) as (channel,):
        with pytest.raises(TypeError, match="a callback must be a function, not str"):
            getattr(channel, method)("print")
        with pytest.raises(TypeError, match="nothing would await it"):
            getattr(channel, method)(coroutine_function)
        with pytest.raises(TypeError, match="a callback must be a function"):
            await channel.broadcast_file(__file__, on_progress=5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="a callback must be a function"):
            channel.layer("zz", 5)  # type: ignore[arg-type]


async def test_timeout_that_is_not_a_number_is_rejected() -> None:
    async with connected_channels(1) as (channel,):
        for wait in (channel.receive, channel.wait_for_peers):
            with pytest.raises(ValueError, match="NaN"):
                await wait(math.nan)
            with pytest.raises(TypeError, match="timeout_s must be a number of seconds or None, not str"):
                await wait("1")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_channel_raises_in_a_forked_process() -> None:
    async with connected_channels(1) as (channel,):
        child = os.fork()
        if child == 0:
            try:
                channel.broadcast_nowait(b"x")
            except RuntimeError as problem:
                os._exit(0 if "forked process" in str(problem) else 1)
            os._exit(2)
        status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status[1]) == 0
