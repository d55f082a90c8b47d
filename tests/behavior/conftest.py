"""These tests run on the event loop of Broadloom's own programs, and on every runtime of a peer."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from broadloom.protocol import Tuning
from broadloom.transport.event_loop import new_event_loop
from tests.behavior.harness import Harness, OpenHarness, SimHarness, SocketHarness

RUNTIMES = [
    "simulated",
    # The other two find the same errors, and the tests of channels use plain sockets.
    pytest.param("plain sockets", marks=pytest.mark.long),
    pytest.param("TLS", marks=pytest.mark.long),
    "TLS, signed",
]


@pytest.fixture(params=RUNTIMES)
async def open_harness(request: pytest.FixtureRequest) -> AsyncIterator[OpenHarness]:
    opened: list[Harness] = []

    def open_harness(settings: Tuning | None = None) -> Harness:
        runtime: str = request.param
        settings = settings or Tuning()
        if runtime == "simulated":
            opened.append(SimHarness(settings))
        else:
            opened.append(SocketHarness(settings, tls=runtime.startswith("TLS"), signed=runtime.endswith("signed")))
        return opened[-1]

    yield open_harness
    for harness in opened:
        await harness.close()
        assert all(peer.links_max <= harness.settings.degree for peer in harness.peers)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"broadloom": new_event_loop}
