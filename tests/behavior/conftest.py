"""These tests run on the event loop of Broadloom's own programs."""

import asyncio
from collections.abc import Callable

from broadloom.transport.event_loop import new_event_loop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"broadloom": new_event_loop}
