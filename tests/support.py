"""What all tests share: waiting for a condition with a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

TIMEOUT_S = 30.0
"""Generous: a busy machine is no reason to fail. A test that works does not wait for it."""
POLL_S = 0.01

What = str | Callable[[], str]
"""The condition in words. A function is called on failure, to show the state at that time."""


def wait_until(
    condition: Callable[[], Any], what: What = "", timeout_s: float | None = None, poll_s: float = POLL_S
) -> Any:
    """Return the first truthy result of `condition`; `AssertionError` after the timeout. For synchronous tests."""
    started_at = time.monotonic()
    while not (result := condition()):
        _check_deadline(started_at, timeout_s, what)
        time.sleep(poll_s)
    return result


async def eventually(
    condition: Callable[[], Any], what: What = "", timeout_s: float | None = None, poll_s: float = POLL_S
) -> Any:
    """As `wait_until`, for asynchronous tests."""
    started_at = time.monotonic()
    while not (result := condition()):
        _check_deadline(started_at, timeout_s, what)
        await asyncio.sleep(poll_s)
    return result


async def eventually_equal(ask: Callable[[], Awaitable[object]], expected: object) -> None:
    """As `eventually`, for an answer that has to be awaited."""
    started_at = time.monotonic()
    while (answer := await ask()) != expected:
        _check_deadline(started_at, None, f"{answer!r}: {expected!r}")
        await asyncio.sleep(POLL_S)


def _check_deadline(started_at: float, timeout_s: float | None, what: What) -> None:
    timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
    if time.monotonic() > started_at + timeout_s:
        text = what() if callable(what) else what
        raise AssertionError(f"{text or 'condition'} not met within {timeout_s:g} s")
