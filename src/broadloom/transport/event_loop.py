"""The event loop that Broadloom's own programs run in: uvloop where it is installed, for speed; else that of Python."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`: Ctrl-C cancels `main`, which then leaves its channels properly."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
