"""These tests run on both runtimes of a post office."""

from collections.abc import AsyncIterator

import pytest

from tests.mailboxes.harness import Harness, SimHarness, SocketHarness


@pytest.fixture(params=["simulated", "sockets"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    made: Harness = SimHarness() if request.param == "simulated" else SocketHarness()
    yield made
    await made.close()
