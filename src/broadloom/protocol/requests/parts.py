"""Requests, replies and one-way messages that are larger than one frame, on their way in parts."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.wire.direct_messages import MORE
from broadloom.wire.fields import PART_BYTES_MAX

if TYPE_CHECKING:
    from broadloom.protocol.requests.direct_connection import DirectConnection


class Partial:
    """A request or a one-way message of which some parts have arrived."""

    __slots__ = ("deadline_at", "flags", "layer", "parts", "size")

    def __init__(self, layer: int, flags: int, deadline_at: float, part: bytes) -> None:
        self.layer = layer
        self.flags = flags & ~MORE
        self.deadline_at = deadline_at
        self.parts = [part]
        self.size = len(part)

    def add(self, part: bytes) -> None:
        self.parts.append(part)
        self.size += len(part)


class PartSender:
    """The parts of one request, reply or one-way message that are still to be sent."""

    __slots__ = ("_at", "_data", "_encode", "on_sent")

    def __init__(self, data: bytes, encode: Callable[[memoryview, int], bytes], on_sent: Callable[[], None]) -> None:
        """`encode` makes the frame of a part and the flag `MORE`; `on_sent` is called after the last one."""
        self._data = memoryview(data)
        self._at = 0
        self._encode = encode
        self.on_sent = on_sent

    @property
    def size(self) -> int:
        return len(self._data)

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._data)

    def next_frame(self) -> bytes:
        part = self._data[self._at : self._at + PART_BYTES_MAX]
        self._at += len(part)
        return self._encode(part, 0 if self.is_done else MORE)


class PartQueue:
    """What is being sent in parts over one connection: one part of each in turn, while the connection takes them."""

    def __init__(self, connection: "DirectConnection") -> None:
        self._connection = connection
        self._senders: deque[PartSender] = deque()

    def __len__(self) -> int:
        return len(self._senders)

    def add(self, sender: PartSender) -> None:
        self._senders.append(sender)
        self.send()

    def remove(self, sender: PartSender) -> None:
        if sender in self._senders:
            self._senders.remove(sender)

    def clear(self) -> None:
        self._senders.clear()

    def send(self) -> None:
        while self._senders and not self._connection.is_congested:
            sender = self._senders.popleft()
            self._connection.send(sender.next_frame())
            if sender.is_done:
                sender.on_sent()
            else:
                self._senders.append(sender)
