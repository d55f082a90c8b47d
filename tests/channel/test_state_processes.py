"""State of other processes, of which one is killed while it serves."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from broadloom import PeerId
from broadloom.protocol.state.fetch import StateFetch
from tests.channel.joined import connected_channels, unique_name
from tests.channel.test_state import offered
from tests.support import TIMEOUT_S

STATE_BYTES = 8 << 20
HELPER = """
import asyncio, random, sys
import broadloom

async def main():
    channel = await broadloom.connect(sys.argv[1], tls=sys.argv[2] == "tls")
    reader = channel.subscribe()
    large = random.Random(1).randbytes(int(sys.argv[3]))
    texts = []
    channel.on_state("log", lambda: [large, ",".join(texts).encode()], reader=reader)
    print(channel.peer_id, flush=True)
    async for message in reader:
        texts.append(message.text)

asyncio.run(main())
"""


@asynccontextmanager
async def helper_process(name: str, mode: str) -> "AsyncIterator[tuple[PeerId, subprocess.Popen[bytes]]]":
    command = [sys.executable, "-c", HELPER, name, mode, str(STATE_BYTES)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ)  # noqa: ASYNC220
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), TIMEOUT_S)
        yield PeerId(int(line, 16)), process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("mode", [pytest.param("plain", marks=pytest.mark.long), "tls"])
async def test_fetch_goes_on_at_another_member_when_the_helper_is_killed(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = unique_name()
    async with AsyncExitStack() as stack:
        (author,) = await stack.enter_async_context(connected_channels(1, name=name, tls=mode == "tls"))
        helpers = dict([await stack.enter_async_context(helper_process(name, mode)) for _ in range(2)])
        (newcomer,) = await stack.enter_async_context(connected_channels(1, name=name, tls=mode == "tls"))
        await offered(newcomer, 2)
        chunk_count = 0
        victim, survivor = helpers
        original = StateFetch._on_chunk

        def on_chunk(self: StateFetch, outcome: object, digest: bytes) -> None:
            nonlocal chunk_count
            chunk_count += 1
            if chunk_count == 10:
                helpers[victim].kill()
                author.broadcast_nowait(b"two")
            original(self, outcome, digest)  # type: ignore[arg-type]

        monkeypatch.setattr(StateFetch, "_on_chunk", on_chunk)
        reader = newcomer.subscribe()
        await author.broadcast(b"one")
        state = await newcomer.fetch_state("log", reader=reader, helper=victim)
        assert state.peer_id == survivor
        texts = state.data[STATE_BYTES:].decode().split(",")
        await author.broadcast(b"three")
        while texts[-1] != "three":
            texts.append((await reader.receive(20)).text)
        assert texts == ["one", "two", "three"]
        # Chunks of the killed member were not fetched again: 33 are needed, and few requests were lost with it.
        assert chunk_count <= 33 + 8
