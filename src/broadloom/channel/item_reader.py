"""`ItemReader`: the reading half of what a program gets item by item from a layer: a group, a watch, an order."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from typing import ClassVar, Generic, TypeVar

from broadloom.channel.arguments import check_timeout
from broadloom.errors import BroadloomError, NotConnectedError

T = TypeVar("T")


class ItemReader(ABC, Generic[T]):
    """Call `_wakeup.set()` when an item has arrived, and when none will any more."""

    _end_error: ClassVar[type[BroadloomError]] = NotConnectedError
    """Ends an iteration."""

    def __init__(self) -> None:
        self._wakeup = asyncio.Event()

    @abstractmethod
    def _take(self) -> T | None:
        """The next item, if there is one."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raises if no item will come any more."""

    @abstractmethod
    def _awaited(self) -> str:
        """What `receive` waits for, in words."""

    def receive_nowait(self) -> T | None:
        """The next item, or None if there is none right now."""
        return self._take()

    async def receive(self, timeout_s: float | None = None) -> T:
        """The next item. Raises `TimeoutError`, or another error if none will come any more."""
        check_timeout(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                while (item := self._take()) is None:
                    self._check_open()
                    self._wakeup.clear()
                    await self._wakeup.wait()
        except TimeoutError:
            raise TimeoutError(f"no {self._awaited()} within {timeout_s:g} s") from None
        return item

    async def __aiter__(self) -> AsyncGenerator[T, None]:
        """Items as they arrive, until none will come any more."""
        while True:
            try:
                item = await self.receive()
            except self._end_error:
                return
            yield item
