"""`Item`: one message of a topic, as a subscriber gets it; and the queue in which items wait to be read."""

import asyncio
import json
from collections import deque
from dataclasses import dataclass
from typing import Any

ITEMS_MAX = 10_000
"""Items that wait to be read; further ones wait in the inboxes of their channels, which drop the oldest."""


@dataclass(frozen=True, slots=True)
class Item:
    topic: str
    producer: str
    """The name on its ticket; empty on channels without tickets."""
    data: bytes
    sent_at_ms: int | None
    """By the clock of the producer."""
    advert: str | None = None
    """The name of the ad, if it is one."""
    content_type: str | None = None

    @property
    def text(self) -> str:
        """The data as UTF-8 text. Raises `ValueError` if it is not."""
        return self.data.decode()

    def json(self) -> Any:
        """The data parsed as JSON. Raises `ValueError` if it is not."""
        return json.loads(self.data)


class ItemQueue:
    def __init__(self, wakeup: asyncio.Event) -> None:
        self._items: deque[Item] = deque()
        self._wakeup = wakeup
        self._room = asyncio.Event()

    async def put(self, item: Item) -> None:
        """Waits while the queue is full."""
        while len(self._items) >= ITEMS_MAX:
            self._room.clear()
            await self._room.wait()
        self._items.append(item)
        self._wakeup.set()

    def pop(self) -> Item | None:
        if not self._items:
            return None
        self._room.set()
        return self._items.popleft()
