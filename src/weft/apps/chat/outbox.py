"""What was written and waits to be said: one after the other, in order, while the channel may be behind."""

import asyncio
from collections.abc import Awaitable, Callable

OUTBOX_MAX = 50
"""Texts that wait; one more is refused, and stays where it was written."""


class Outbox:
    """`run` it as a task of its own."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue(OUTBOX_MAX)

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    def put(self, say: Callable[[], Awaitable[None]]) -> bool:
        """False if too much waits already."""
        try:
            self._queue.put_nowait(say)
        except asyncio.QueueFull:
            return False
        return True

    async def run(self) -> None:
        while True:
            await (await self._queue.get())()
