"""`Observer`: copies of messages for one observer, with a callback or as an iterator."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from broadloom.channel.arguments import check_timeout
from broadloom.errors import NotConnectedError
from broadloom.switch.model import Pattern, SwitchMessage
from broadloom.switch.observers import ObserverEntry

if TYPE_CHECKING:
    from broadloom.switch.switch import Switch

log = logging.getLogger("broadloom")


class Observer:
    """Returned by `Switch.observe`. Iterate over it, or give `observe` a callback. `aclose` or `async with` ends it."""

    def __init__(
        self,
        switch: "Switch",
        pattern: Pattern,
        callback: Callable[[SwitchMessage], None] | None,
        messages_max: int,
    ) -> None:
        if messages_max < 1:
            raise ValueError(f"messages_max={messages_max}: must be at least 1")
        self._switch = switch
        self._callback = callback
        self._entry = ObserverEntry(pattern, self._deliver)
        self._unread: deque[SwitchMessage] = deque(maxlen=messages_max)
        self._wakeup = asyncio.Event()
        self._is_ended = False
        self.dropped_count = 0
        """Copies that were dropped because the program did not read in time."""

    @property
    def unread_count(self) -> int:
        return len(self._unread)

    def _deliver(self, message: SwitchMessage) -> None:
        if self._callback is None:
            self.dropped_count += len(self._unread) == self._unread.maxlen
            self._unread.append(message)
            self._wakeup.set()
            return
        try:
            self._callback(message)
        except Exception:
            log.exception("%s: an observer failed", self._switch.channel.name)

    async def receive(self, timeout_s: float | None = None) -> SwitchMessage:
        """The next copy. Raises `TimeoutError`, or `NotConnectedError` after the end."""
        check_timeout(timeout_s)
        async with asyncio.timeout(timeout_s):
            while not self._unread:
                if self._is_ended:
                    raise NotConnectedError(f"{self._switch.channel.name}: the observer was closed")
                self._wakeup.clear()
                await self._wakeup.wait()
        return self._unread.popleft()

    async def __aiter__(self) -> AsyncGenerator[SwitchMessage, None]:
        while True:
            try:
                message = await self.receive()
            except NotConnectedError:
                return
            yield message

    def _end(self) -> None:
        self._is_ended = True
        self._wakeup.set()

    async def aclose(self) -> None:
        """Observe no more. What was received can still be read."""
        self._switch._remove_observer(self)
        self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
