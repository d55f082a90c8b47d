"""The bridge from synchronous code to asyncio: one background thread runs the event loop of all synchronous channels.

A synchronous class is a `SyncWrapper`: it holds its asynchronous counterpart in `_wrapped`. Its members are generated
from those of the counterpart, with the same parameters, results, exceptions and docstrings (`awaits`, `calls`,
`iterates`, `subscribes`, `polls`, and `Attribute` for properties).
"""

import asyncio
import atexit
import functools
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from broadloom.channel.channel import Channel
from broadloom.channel.closable import AsyncClosable
from broadloom.transport.event_loop import new_event_loop

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
C = TypeVar("C", bound=AsyncClosable)

EXIT_LINGER_S = 0.05
"""Time for the event loop to close its sockets when the process exits."""
EXIT_TIMEOUT_S = 2.0


class EventLoopThread:
    """The event loop of all synchronous channels; started by the first one, stopped when the process exits.

    A forked child has no copy of the thread, so it starts a loop of its own. It never touches that of its parent, whose
    sockets and epoll instance it shares.
    """

    def __init__(self) -> None:
        self._of_parent: list[object] = []
        """Kept, because a loop that is garbage collected closes its sockets."""
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._on_fork)

    def _on_fork(self) -> None:
        self._of_parent += [self._loop, self._channels]
        self._reset()

    def _reset(self) -> None:
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
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            asyncio.run_coroutine_threadsafe(self._close_sockets(loop), loop)
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


class SyncWrapper(Generic[T]):
    """The synchronous counterpart of an asynchronous object. Two twins of the same object are equal."""

    def __init__(self, twin: T) -> None:
        self._object = twin
        self._pid = os.getpid()

    @property
    def _wrapped(self) -> T:
        if self._pid != os.getpid():
            raise RuntimeError("a channel cannot be used in a forked process: connect there")
        return self._object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SyncWrapper) and other._wrapped is self._wrapped

    def __hash__(self) -> int:
        return hash(self._wrapped)


class ClosableSyncWrapper(SyncWrapper[C]):
    """A twin that is used with `with`."""

    def close(self) -> None:
        """The same as the end of the `with` statement."""
        run(self._wrapped.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Attribute(Generic[T]):
    """A read-only attribute of the counterpart, read in the calling thread, or `in_loop` if its value is computed from
    state that may change meanwhile. A value that changes itself has a `copy`, which is made in the loop."""

    def __init__(self, *, in_loop: bool = False, copy: Callable[[T], T] | None = None) -> None:
        self._in_loop = in_loop or copy is not None
        self._copy = copy

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: SyncWrapper[Any], owner: type) -> T: ...
    def __get__(self, instance: SyncWrapper[Any] | None, owner: type) -> Self | T:
        if instance is None:
            return self
        return call(self._read, instance._wrapped) if self._in_loop else self._read(instance._wrapped)

    def _read(self, counterpart: Any) -> T:
        value: T = getattr(counterpart, self._name)
        return value if self._copy is None else self._copy(value)

    def __set__(self, instance: SyncWrapper[Any], value: T) -> None:
        raise AttributeError(f"{self._name} is read-only")


def awaits(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The synchronous twin of a coroutine method."""
    return awaits_into(lambda result: result, method)


def awaits_into(
    convert: Callable[[T], S], method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[Any, P], S]:
    """The same for a method whose result has a twin of its own."""

    @functools.wraps(method)
    def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> S:
        return convert(run(method(self._wrapped, *args, **kwargs)))

    return twin


def calls(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The thread-safe twin of a plain method."""
    return calls_into(lambda result: result, method)


def calls_into(convert: Callable[[T], S], method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], S]:
    """The same for a method whose result has a twin of its own."""

    @functools.wraps(method)
    def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> S:
        return convert(call(method, self._wrapped, *args, **kwargs))

    return twin


def iterates(
    method: Callable[Concatenate[Any, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """The synchronous twin of a method that returns an asynchronous generator."""

    @functools.wraps(method)
    def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return iterate(method(self._wrapped, *args, **kwargs))

    return twin


def subscribes(
    method: Callable[Concatenate[Any, P], Callable[[], None]],
) -> Callable[Concatenate[Any, P], Callable[[], None]]:
    """The thread-safe twin of a method that returns a function to unsubscribe."""
    return calls_into(lambda unsubscribe: functools.partial(call, unsubscribe), method)


def polls(method: Callable[Concatenate[Any, P], T | None]) -> Callable[Concatenate[Any, P], T | None]:
    """The twin of a `receive_nowait` that looks at `unread_count` first, which costs nothing in a main loop."""

    @functools.wraps(method)
    def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        return call(method, self._wrapped, *args, **kwargs) if self.unread_count else None

    return twin
