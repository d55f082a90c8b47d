"""What was delivered and not yet read, and what happens when that becomes too much.

Never grows beyond its limits; what has to give way is told as missed, exactly.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum

from broadloom.protocol.events import Batch, Message, Missed
from broadloom.wire import PeerId

DROP_DIVISOR = 8
"""When the inbox is full, one in so many of its messages makes room: one by one would tell of each by itself."""


class Overflow(Enum):
    """What to do when the application does not keep up with its channel."""

    DROP_OLDEST = "drop_oldest"
    """Give up the oldest unread messages, and tell the application which."""
    PAUSE = "pause"
    """Stop reading from the neighbours until there is room. They wait for a while, then go on without this peer."""
    LEAVE = "leave"
    """Leave the channel; the next read raises `FellBehind`."""


class Inbox:
    """First in, first out; bounded in messages and in bytes. Batches stay whole until they are read one by one."""

    def __init__(
        self,
        messages_max: int,
        bytes_max: int,
        *,
        on_full: Callable[[], None],
        on_drained: Callable[[], None],
    ) -> None:
        self._batches: deque[Batch] = deque()
        self._read_count = 0
        """Messages of the first batch that were read already."""
        self._count = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._on_full = on_full
        self._on_drained = on_drained
        self.is_full = False
        """Over a limit since it was last half empty."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.is_closed = False

    def __len__(self) -> int:
        return self._count

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def put(self, batch: Batch) -> None:
        self._batches.append(batch)
        self._count += len(batch.data)
        self._bytes += sum(map(len, batch.data))
        if self._waiters:
            self._wake_one()
        if self._is_over_limit:
            self.is_full = True
            self._on_full()

    def push_front(self, batch: Batch) -> None:
        """To the front: it was taken, and so much of it was not read. (It was within the limits a moment ago.)"""
        if not batch.data:
            return
        if self._read_count:
            front = self._batches.popleft()
            self._batches.appendleft(front.after(front.first_sequence + self._read_count - 1))
            self._read_count = 0
        self._batches.appendleft(batch)
        self._count += len(batch.data)
        self._bytes += sum(map(len, batch.data))
        if self._waiters:
            self._wake_one()

    @property
    def _is_over_limit(self) -> bool:
        return self._bytes > self._bytes_max or self._count > self._messages_max

    def take(self) -> Message | None:
        """The next message, or None at once."""
        if not self._count:
            return None
        batch, index = self._batches[0], self._read_count
        data = batch.data[index]
        self._on_taken(1, len(data))
        self._check_drained()
        return Message(batch.author, batch.first_sequence + index, data, batch.hops, batch.kind)

    def take_batch(self) -> Batch | None:
        """The next messages that came together, or None at once."""
        if not self._count:
            return None
        batch = self._batches[0].after(self._batches[0].first_sequence + self._read_count - 1)
        self._on_taken(len(batch.data), sum(map(len, batch.data)))
        self._check_drained()
        return batch

    def _on_taken(self, count: int, size: int) -> None:
        """So many messages at the front have gone, all of one batch."""
        self._count -= count
        self._bytes -= size
        self._read_count += count
        if self._read_count == len(self._batches[0].data):
            self._batches.popleft()
            self._read_count = 0

    def _check_drained(self) -> None:
        if self._count and self._waiters:
            self._wake_one()  # a batch wakes one reader, and has something for the next one as well
        if self.is_full and 2 * self._bytes <= self._bytes_max and 2 * self._count <= self._messages_max:
            self.is_full = False
            self._on_drained()

    async def wait(self) -> None:
        """Until there is a message, or never will be."""
        while not self._count and not self.is_closed:
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
        left = self._count - self._count // DROP_DIVISOR
        while self._count and (self._is_over_limit or self._count > left):
            batch = self._batches[0]
            author, sequence = batch.author, batch.first_sequence + self._read_count
            self._on_taken(1, len(batch.data[self._read_count]))
            at = latest.get(author)
            if at is not None and ranges[at].last_sequence == sequence - 1:
                ranges[at] = Missed(author, ranges[at].first_sequence, sequence)
            else:  # what lies between two ranges was told as missed already
                latest[author] = len(ranges)
                ranges.append(Missed(author, sequence, sequence))
        self.is_full = False
        return ranges

    def close(self) -> None:
        """Nothing more will come; what is there can still be read."""
        self.is_closed = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
