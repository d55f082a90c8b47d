"""The event loop of Broadloom's own programs: uvloop if it is installed (the extra `speed`), else asyncio's."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, with `new_event_loop`. For programs: what is loaded by now stays, so the garbage collector need
    not visit it again; its pauses would delay messages."""
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(main)
    finally:
        gc.unfreeze()
