"""The inbox: delivered messages that the application has not read yet, and the policy for when it is full.

It never grows beyond its limits. What it drops is reported: as `Missed` by the channel, as `SubscriptionOverflow` by a
subscription. `Message` objects are created only when they are read.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum

from broadloom.protocol.events import Batch, Message, Missed
from broadloom.wire import PeerId

DROP_DIVISOR = 8
"""A full inbox drops this fraction of its messages at once, so that few `Missed` events cover many messages."""


class Overflow(StrEnum):
    """What happens when the application does not read a channel, or a subscription, in time."""

    DROP_OLDEST = "drop_oldest"
    """Drop the oldest unread messages and report them."""
    PAUSE = "pause"
    """Stop reading from the sockets until there is room. Neighbors wait for a while, then go on without this peer. A
    subscription does so for two seconds at a time, then it drops the oldest messages."""
    LEAVE = "leave"
    """Leave the channel, or end the subscription; the next read raises `InboxOverflowError`."""


class Inbox:
    """A FIFO of batches, bounded in messages and in bytes."""

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
        """Messages of the first batch that were already read."""
        self._count = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._on_full = on_full
        self._on_drained = on_drained
        self.is_full = False
        """Has exceeded a limit and not been half empty since."""
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

    def unread(self) -> list[Batch]:
        """What can be read, without taking it."""
        if not self._batches:
            return []
        first, *rest = self._batches
        return [first.part(self._read_count, len(first)), *rest]

    def push_front(self, batch: Batch) -> None:
        """Return the unread rest of a batch that was taken. Limits are not checked: it was within them before."""
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
        if not self._count:
            return None
        batch, index = self._batches[0], self._read_count
        data = batch.data[index]
        self._on_taken(1, len(data))
        self._check_drained()
        if batch.envelopes is None:
            return Message(batch.author, batch.first_sequence + index, data, batch.hops, batch.kind)
        return batch.message(index)

    def take_batch(self) -> Batch | None:
        if not self._count:
            return None
        batch = self._batches[0].after(self._batches[0].first_sequence + self._read_count - 1)
        self._on_taken(len(batch.data), sum(map(len, batch.data)))
        self._check_drained()
        return batch

    def _on_taken(self, count: int, size: int) -> None:
        """Remove messages at the front, all of one batch."""
        self._count -= count
        self._bytes -= size
        self._read_count += count
        if self._read_count == len(self._batches[0].data):
            self._batches.popleft()
            self._read_count = 0

    def _check_drained(self) -> None:
        if self._count and self._waiters:
            self._wake_one()  # putting a batch woke one reader only
        if self.is_full and 2 * self._bytes <= self._bytes_max and 2 * self._count <= self._messages_max:
            self.is_full = False
            self._on_drained()

    async def wait(self) -> None:
        """Return when there is a message or the inbox is closed."""
        while not self._count and not self.is_closed:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled() and self._waiters:
                    self._wake_one()  # pass the wake-up on to another reader
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
        """Make room; returns the dropped messages as ranges per author."""
        ranges: list[Missed] = []
        latest: dict[PeerId, int] = {}
        """Author -> index of its last range."""
        keep = self._count - self._count // DROP_DIVISOR
        while self._count and (self._is_over_limit or self._count > keep):
            batch = self._batches[0]
            author, sequence = batch.author, batch.first_sequence + self._read_count
            self._on_taken(1, len(batch.data[self._read_count]))
            index = latest.get(author)
            if index is not None and ranges[index].last_sequence == sequence - 1:
                ranges[index] = Missed(author, ranges[index].first_sequence, sequence)
            else:  # a gap between two ranges was already reported as missed
                latest[author] = len(ranges)
                ranges.append(Missed(author, sequence, sequence))
        self.is_full = False
        return ranges

    def cut(self, through: Mapping[PeerId, int]) -> None:
        """Drop, without a report, the messages of each author up to this sequence number."""
        batches = [batch.after(through.get(batch.author, 0)) for batch in self.unread()]
        self._batches = deque(batch for batch in batches if batch.data)
        self._read_count = 0
        self._count = sum(len(batch.data) for batch in self._batches)
        self._bytes = sum(sum(map(len, batch.data)) for batch in self._batches)
        self._check_drained()

    def keep_newest(self, bytes_max: int) -> None:
        """Drop the oldest messages until this many bytes are left, without a report: nobody reads them."""
        while self._bytes > bytes_max and len(self._batches) > 1:
            data = self._batches[0].data[self._read_count :]
            self._on_taken(len(data), sum(map(len, data)))

    def close(self) -> None:
        """No more messages will arrive; unread ones can still be read."""
        self.is_closed = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
