"""Shared by the tests over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support import eventually
from tests.transport.connections import open_sockets


@pytest.fixture
async def no_leaks() -> AsyncIterator[None]:
    """The test leaves no task and no open socket behind, and no exception reaches the event loop."""
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, problem: problems.append(problem))
    before = open_sockets()
    yield
    await eventually(lambda: len(asyncio.all_tasks()) == 1, "end of all tasks", 5)
    await eventually(lambda: open_sockets() <= before, "end of all sockets", 5)
    assert not problems, problems
