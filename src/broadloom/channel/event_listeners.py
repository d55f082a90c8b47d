"""`EventListeners`: the receivers of events, with callbacks or asynchronous iterators. Used by channels and layers.

A callback that fails is logged and affects no other listener.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

from broadloom.channel.arguments import CALLBACK_ERRORS

E = TypeVar("E")

log = logging.getLogger("broadloom")

EVENTS_MAX = 1000
"""Events buffered for each iterator; the oldest are dropped."""


class EventListeners(Generic[E]):
    def __init__(self, name: str) -> None:
        self._name = name
        self._callbacks: list[Callable[[E], None]] = []
        self._wakeups: list[asyncio.Event] = []
        """One for each iterator."""
        self._is_ended = False

    def __len__(self) -> int:
        return len(self._callbacks)

    def add(self, callback: Callable[[E], None]) -> Callable[[], None]:
        """Returns a function that removes the callback."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def emit(self, event: E) -> None:
        for callback in tuple(self._callbacks):
            try:
                callback(event)
            except CALLBACK_ERRORS:
                log.exception("%s: an event callback failed", self._name)

    async def events(self) -> AsyncGenerator[E, None]:
        """Events as they happen, until the end."""
        pending: deque[E] = deque(maxlen=EVENTS_MAX)
        wakeup = asyncio.Event()

        def buffer(event: E) -> None:
            pending.append(event)
            wakeup.set()

        remove = self.add(buffer)
        self._wakeups.append(wakeup)
        try:
            while True:
                while pending:
                    yield pending.popleft()
                if self._is_ended:
                    return
                wakeup.clear()
                await wakeup.wait()
        finally:
            remove()
            self._wakeups.remove(wakeup)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, which is checked now and after each event."""
        wakeup = asyncio.Event()
        remove = self.add(lambda _event: wakeup.set())
        try:
            while not condition():
                wakeup.clear()
                await wakeup.wait()
        finally:
            remove()

    def end(self) -> None:
        """No more events: iterators return what is buffered, and end."""
        self._is_ended = True
        for wakeup in self._wakeups:
            wakeup.set()
