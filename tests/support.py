"""What all tests share: waiting for a condition with a deadline."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

TIMEOUT_S = 30.0
"""Generous: a busy machine is no reason to fail. A test that works does not wait for it."""
POLL_S = 0.01


def wait_until(condition: Callable[[], Any], what: str = "", timeout_s: float = TIMEOUT_S) -> Any:
    """Return the first truthy result of `condition`; `AssertionError` after the timeout. For synchronous tests."""
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"{what or 'condition'} not met within {timeout_s:g} s"
        time.sleep(POLL_S)
    return result


async def eventually(condition: Callable[[], Any], what: str = "", timeout_s: float = TIMEOUT_S) -> Any:
    """As `wait_until`, for asynchronous tests."""
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"{what or 'condition'} not met within {timeout_s:g} s"
        await asyncio.sleep(POLL_S)
    return result
