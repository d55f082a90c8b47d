"""What was delivered and not yet read, and what happens when that becomes too much.

Never grows beyond its limits; what has to give way is told as missed, exactly.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum

from weft.fabric.events import Message, Missed
from weft.wire import PeerId

DROPPED_SHARE = 8
"""When the inbox is full, one in so many of its messages makes room: one by one would tell of each by itself."""


class Behind(Enum):
    """What to do when the application does not keep up with its channel."""

    DROP = "drop"
    """Give up the oldest unread messages, and tell the application which."""
    WAIT = "wait"
    """Stop reading from the neighbours until there is room. They wait for a while, then go on without this peer."""
    LEAVE = "leave"
    """Leave the channel; the next read raises `FellBehind`."""


class Inbox:
    """First in, first out; bounded in messages and in bytes."""

    def __init__(
        self,
        messages_max: int,
        bytes_max: int,
        *,
        on_full: Callable[[], None],
        on_room: Callable[[], None],
    ) -> None:
        self._messages: deque[Message] = deque()
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._on_full = on_full
        self._on_room = on_room
        self.is_full = False
        """Over a limit since it was last half empty."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.closed = False

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def put(self, message: Message) -> None:
        self._messages.append(message)
        self._bytes += len(message.data)
        if self._waiters:
            self._wake_one()
        if self._is_over:
            self.is_full = True
            self._on_full()

    @property
    def _is_over(self) -> bool:
        return self._bytes > self._bytes_max or len(self._messages) > self._messages_max

    def take(self) -> Message | None:
        """The next message, or None at once."""
        if not self._messages:
            return None
        message = self._messages.popleft()
        self._bytes -= len(message.data)
        if self.is_full and 2 * self._bytes <= self._bytes_max and 2 * len(self._messages) <= self._messages_max:
            self.is_full = False
            self._on_room()
        return message

    async def wait(self) -> None:
        """Until there is a message, or never will be."""
        while not self._messages and not self.closed:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled() and self._waiters:
                    self._wake_one()  # we were told and go away: somebody else shall look
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def drop_oldest(self) -> list[Missed]:
        """Make room; says what was given up, as ranges in each author's order."""
        ranges: list[Missed] = []
        latest: dict[PeerId, int] = {}
        """Author -> its last range."""
        left = len(self._messages) - len(self._messages) // DROPPED_SHARE
        while self._messages and (self._is_over or len(self._messages) > left):
            author, sequence, data, _ = self._messages.popleft()
            self._bytes -= len(data)
            at = latest.get(author)
            if at is not None and ranges[at].last == sequence - 1:
                ranges[at] = Missed(author, ranges[at].first, sequence)
            else:  # what lies between two ranges was told as missed already
                latest[author] = len(ranges)
                ranges.append(Missed(author, sequence, sequence))
        self.is_full = False
        return ranges

    def close(self) -> None:
        """Nothing more will come; what is there can still be read."""
        self.closed = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
