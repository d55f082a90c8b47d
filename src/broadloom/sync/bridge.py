"""The bridge from synchronous code to asyncio: one background thread runs the event loop of all synchronous channels.

A synchronous class holds its asynchronous twin in `_twin`. Most of its methods are generated from those of the twin
(`awaits`, `calls`, `iterates`, `subscribes`), with the same parameters and docstrings.
"""

import asyncio
import atexit
import functools
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from broadloom.channel.channel import Channel
from broadloom.transport.event_loop import new_event_loop

P = ParamSpec("P")
T = TypeVar("T")

EXIT_LINGER_S = 0.05
"""Time for the event loop to close its sockets when the process exits."""
EXIT_TIMEOUT_S = 2.0


class EventLoopThread:
    """The event loop of all synchronous channels; started by the first one, stopped when the process exits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._channels: weakref.WeakSet[Channel] = weakref.WeakSet()

    def add_channel(self, channel: Channel) -> None:
        """Close the sockets of this channel when the process exits."""
        self._channels.add(channel)

    @property
    def is_current(self) -> bool:
        """Whether this is the background thread: the caller is a callback, and must not block."""
        return threading.current_thread() is self._thread

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name="broadloom", daemon=True)
                self._thread.start()
                atexit.register(self._stop)
            return self._loop

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.close()

    def _stop(self) -> None:
        """A daemon thread that is killed inside the event loop could crash the interpreter."""
        if self._loop is not None and self._thread is not None:
            asyncio.run_coroutine_threadsafe(self._close_sockets(self._loop), self._loop)
            self._thread.join(EXIT_TIMEOUT_S)

    async def _close_sockets(self, loop: asyncio.AbstractEventLoop) -> None:
        await asyncio.sleep(0)  # messages that were just sent go out first
        for channel in self._channels:
            channel._close_sockets()
        loop.call_later(EXIT_LINGER_S, loop.stop)


loop_thread = EventLoopThread()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the background thread and wait for its result."""
    if loop_thread.is_current:
        work.close()
        raise RuntimeError("a callback must not wait for the thread it runs in: use the `_nowait` methods")
    future = asyncio.run_coroutine_threadsafe(work, loop_thread.loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in the background thread; directly if this is it, as in a callback."""
    if loop_thread.is_current:
        return function(*args, **kwargs)

    async def work() -> T:
        return function(*args, **kwargs)

    return run(work())


def iterate(generator: AsyncGenerator[T, None]) -> Iterator[T]:
    """The items of an asynchronous generator."""

    async def next_item() -> tuple[T] | None:
        try:
            return (await anext(generator),)
        except StopAsyncIteration:
            return None

    async def close() -> None:
        await generator.aclose()

    try:
        while (item := run(next_item())) is not None:
            yield item[0]
    finally:
        # Not awaited: a generator may be finalized in any thread, also in the background thread.
        with suppress(RuntimeError):
            asyncio.run_coroutine_threadsafe(close(), loop_thread.loop())


def awaits(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The synchronous twin of a coroutine method."""

    @functools.wraps(method)
    def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(self._twin, *args, **kwargs))

    return twin


def calls(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The thread-safe twin of a plain method."""

    @functools.wraps(method)
    def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return call(functools.partial(method, self._twin, *args, **kwargs))

    return twin


def iterates(method: Callable[[Any], AsyncGenerator[T, None]]) -> Callable[[Any], Iterator[T]]:
    """The synchronous twin of a method that returns an asynchronous generator."""

    @functools.wraps(method)
    def twin(self: Any) -> Iterator[T]:
        return iterate(method(self._twin))

    return twin


def subscribes(
    method: Callable[Concatenate[Any, P], Callable[[], None]],
) -> Callable[Concatenate[Any, P], Callable[[], None]]:
    """The thread-safe twin of a method that returns a function to unsubscribe."""

    @functools.wraps(method)
    def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Callable[[], None]:
        unsubscribe = call(functools.partial(method, self._twin, *args, **kwargs))
        return lambda: call(unsubscribe)

    return twin
