"""Requests, replies and one-way messages that are larger than one frame, on their way in parts."""

from broadloom.protocol.requests.outgoing import OutgoingRequest
from broadloom.wire.direct_messages import MORE
from broadloom.wire.fields import PART_BYTES_MAX


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

    __slots__ = ("_at", "_data", "reply_id", "request")

    def __init__(self, data: bytes, request: OutgoingRequest | None, reply_id: int = 0) -> None:
        self._data = memoryview(data)
        self._at = 0
        self.request = request
        """None for a reply."""
        self.reply_id = reply_id

    @property
    def size(self) -> int:
        return len(self._data)

    @property
    def is_first(self) -> bool:
        return self._at == 0

    def next(self) -> tuple[memoryview, int]:
        """The next part, and the flag `MORE` unless it is the last."""
        part = self._data[self._at : self._at + PART_BYTES_MAX]
        self._at += len(part)
        return part, MORE if self._at < len(self._data) else 0
