"""`Observer`: copies of messages for one observer, with a callback or as an iterator."""

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.channel.arguments import CALLBACK_ERRORS
from broadloom.channel.closable import AsyncClosable
from broadloom.channel.item_reader import ItemReader
from broadloom.errors import NotConnectedError
from broadloom.switch.model import Pattern, SwitchMessage
from broadloom.switch.observers import ObserverEntry

if TYPE_CHECKING:
    from broadloom.switch.switch import Switch

log = logging.getLogger("broadloom")


class Observer(ItemReader[SwitchMessage], AsyncClosable):
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
        super().__init__()
        self._switch = switch
        self._callback = callback
        self._entry = ObserverEntry(pattern, self._deliver)
        self._unread: deque[SwitchMessage] = deque(maxlen=messages_max)
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
        except CALLBACK_ERRORS:
            log.exception("%s: an observer failed", self._switch.channel.name)

    def _take(self) -> SwitchMessage | None:
        return self._unread.popleft() if self._unread else None

    def _check_open(self) -> None:
        if self._is_ended:
            raise NotConnectedError(f"{self._switch.channel.name}: the observer was closed")

    def _awaited(self) -> str:
        return f"message of {self._switch.channel.name} was observed"

    def _end(self) -> None:
        self._is_ended = True
        self._wakeup.set()

    async def aclose(self) -> None:
        """Observe no more. What was received can still be read."""
        self._switch._remove_observer(self)
        self._end()
