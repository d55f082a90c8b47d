"""The suite of the switch runs over the simulator and over real sockets."""

from collections.abc import AsyncIterator

import pytest

from tests.switch.harness import SimSwitchHarness, SocketSwitchHarness, SwitchHarness


@pytest.fixture(params=["simulated", "sockets"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[SwitchHarness]:
    opened: SwitchHarness = SimSwitchHarness() if request.param == "simulated" else SocketSwitchHarness()
    yield opened
    await opened.close()
