"""Tests here run on uvloop, those marked `each_loop` also on asyncio's own loop, and must leave nothing behind."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.transport.connections import LOOPS, no_leaks


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], Any]]:
    marker = item.get_closest_marker("asyncio")
    return LOOPS if marker is not None and "loop_factories" in marker.kwargs else {"uvloop": LOOPS["uvloop"]}


@pytest.fixture(autouse=True)
async def _no_leaks(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    async with no_leaks():
        yield
