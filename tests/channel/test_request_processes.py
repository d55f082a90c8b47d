"""Direct requests to other processes that are killed or stopped."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

import broadloom
from broadloom import Channel, PeerId
from tests.channel.joined import QUICK, connected_channels, unique_name
from tests.support import TIMEOUT_S, eventually

SERVER = """
import asyncio, sys
import broadloom

async def answer(request):
    if request.data == b"slow":
        await asyncio.sleep(60)
    return request.data

async def main():
    channel = await broadloom.connect(sys.argv[1], tls=sys.argv[2] == "tls")
    channel.on_request(answer)
    print(channel.peer_id, flush=True)
    await asyncio.sleep(120)

asyncio.run(main())
"""
SHORT_TIMEOUT = replace(QUICK, heartbeat_s=0.5, heartbeat_timeout_s=2.0)


@asynccontextmanager
async def server_process(
    mode: str = "plain", **options: Any
) -> AsyncIterator[tuple[Channel, PeerId, "subprocess.Popen[bytes]"]]:
    """A channel here, and the id and the process of a member that answers."""
    name = unique_name()
    async with connected_channels(1, name=name, tls=mode == "tls", **options) as (caller,):
        command = [sys.executable, "-c", SERVER, name, mode]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ)  # noqa: ASYNC220
        try:
            assert process.stdout is not None
            line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), TIMEOUT_S)
            peer = PeerId(int(line, 16))
            await eventually(lambda: caller._node.peer.requests.address_of(peer), "the server is known")
            yield caller, peer, process
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("mode", ["plain", "tls"])
async def test_killed_process_is_gone_at_once(mode: str) -> None:
    async with server_process(mode) as (caller, server, process):
        assert (await caller.request(server, b"fast")).data == b"fast"
        tasks = [asyncio.ensure_future(caller.request(server, b"slow", timeout_s=60)) for _ in range(3)]
        await asyncio.sleep(0)
        assert (await caller.request(server, b"after")).data == b"after"  # the slow ones have arrived before
        process.kill()
        for task in tasks:
            with pytest.raises(broadloom.PeerGoneError, match="the connection was lost") as gone:  # not by silence
                await task
            assert gone.value.sent
        with pytest.raises(broadloom.RequestError) as later:
            await caller.request(server, b"?")
        assert not getattr(later.value, "sent", False)


async def test_stopped_process_gives_no_answer_in_time_and_answers_later() -> None:
    async with server_process() as (caller, server, process):
        assert (await caller.request(server, b"fast")).data == b"fast"
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(broadloom.NoAnswerError) as silent:
            await caller.request(server, b"?", timeout_s=0.5)
        assert silent.value.sent
        process.send_signal(signal.SIGCONT)
        assert (await caller.request(server, b"again", timeout_s=30)).data == b"again"


async def test_process_that_stays_stopped_is_gone_after_the_heartbeat_timeout() -> None:
    async with server_process(settings=SHORT_TIMEOUT) as (caller, server, process):
        assert (await caller.request(server, b"fast")).data == b"fast"
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(broadloom.PeerGoneError, match="nothing received for") as gone:
            await caller.request(server, b"?", timeout_s=60)
        assert gone.value.sent
