"""No exception may reach the exception handler of the event loop during an attack."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def unhandled_errors() -> Iterator[list[dict[str, Any]]]:
    errors: list[dict[str, Any]] = []
    yield errors
    assert not errors, errors


@pytest.fixture(autouse=True)
async def _record_unhandled_errors(unhandled_errors: list[dict[str, Any]]) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unhandled_errors.append(context))
