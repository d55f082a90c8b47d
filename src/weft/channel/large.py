"""Messages that are too large for one frame: sent in parts, put together again where they are delivered.

Every part is a message of the fabric, with a sequence of its own, so parts of several large messages and small ones
between them share the links. A large message is delivered in the place of its last part, or told as missed there.
"""

import struct
from collections import Counter
from collections.abc import Callable, Iterator

from weft.fabric.events import Batch, Message, Missed
from weft.wire import PeerId
from weft.wire.broadcast import Kind

PART_BYTES = 64 << 10
"""Larger messages are sent in parts of this size. Small enough that nobody waits long behind one."""
OPEN_MAX = 256
"""Large messages under way at a time; for one more, the one that has not moved for longest is given up, of the author
that has most of them."""

_HEAD = struct.Struct(">IIII")
"""Number of the large message at its author, this part, parts in all, kind of the whole."""


def parts_of(number: int, data: bytes, kind: int) -> Iterator[bytes]:
    """What to send, one after the other."""
    view = memoryview(data)
    count = -(-len(data) // PART_BYTES)
    for part in range(count):
        head = _HEAD.pack(number & 0xFFFFFFFF, part, count, kind)
        yield b"".join((head, view[part * PART_BYTES : (part + 1) * PART_BYTES]))


class _Open:
    __slots__ = ("data", "given_up", "parts", "sequence")

    def __init__(self) -> None:
        self.data = bytearray()
        self.parts = 0
        """That have come."""
        self.sequence = 0
        """Of the last of them."""
        self.given_up = False


class Assembly:
    """The large messages of a channel that have not come to their end."""

    def __init__(self, bytes_max: int, missed: Callable[[Missed], None]) -> None:
        self._bytes_max = bytes_max
        """Of one message; all that are under way may have twice as much."""
        self._missed = missed
        self._open: dict[tuple[PeerId, int], _Open] = {}
        """The one that moved last stands at the end."""
        self.held_bytes = 0

    def __len__(self) -> int:
        """Large messages under way."""
        return len(self._open)

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Parts came; yields what is whole now."""
        for message in batch:
            if len(message.data) < _HEAD.size:
                continue
            number, part, parts, kind = _HEAD.unpack_from(message.data)
            name = message.author, number
            under_way = self._open.pop(name, None)
            if part == 0:
                if under_way is not None:
                    self._abandon(name, under_way)  # begun anew before its end
                under_way = self._begun()
            if under_way is None:
                continue  # it began before our time, or we were told that its first part is missed
            self._open[name] = under_way
            self._add(under_way, part, message)
            if part + 1 >= parts:
                whole = self._ended(name, under_way, kind)
                if whole is not None:
                    yield Batch(message.author, message.sequence, (whole,), message.hops, kind)

    def _begun(self) -> _Open:
        if len(self._open) >= OPEN_MAX:
            counts = Counter(author for author, _ in self._open)
            most = max(counts, key=counts.__getitem__)  # who begins without end harms itself
            oldest = next(name for name in self._open if name[0] == most)
            self._abandon(oldest, self._open.pop(oldest))
        return _Open()

    def _add(self, under_way: _Open, part: int, message: Message) -> None:
        size = len(message.data) - _HEAD.size
        under_way.sequence = message.sequence
        if under_way.given_up or part != under_way.parts or len(under_way.data) + size > self._bytes_max:
            self._give_up(under_way)  # a part was missed, or it is larger than we take
            return
        self._make_room(size)
        if not under_way.given_up:
            under_way.data += memoryview(message.data)[_HEAD.size :]
            under_way.parts += 1
            self.held_bytes += size

    def _make_room(self, size: int) -> None:
        """Who has not moved for longest gives way: perhaps its author is gone, and it will never end."""
        while self.held_bytes + size > 2 * self._bytes_max:
            self._give_up(next(each for each in self._open.values() if each.data))

    def _give_up(self, under_way: _Open) -> None:
        """Its place is kept, so that it can be told as missed where it would have been delivered."""
        self.held_bytes -= len(under_way.data)
        under_way.data, under_way.given_up = bytearray(), True

    def _ended(self, name: tuple[PeerId, int], under_way: _Open, kind: int) -> bytes | None:
        """Its last part is here."""
        del self._open[name]
        if under_way.given_up or kind == Kind.PART:
            self._abandon(name, under_way)
            return None
        self.held_bytes -= len(under_way.data)
        return bytes(under_way.data)

    def _abandon(self, name: tuple[PeerId, int], under_way: _Open) -> None:
        """It will not be delivered, whatever may still come of it."""
        self.held_bytes -= len(under_way.data)
        self._missed(Missed(name[0], under_way.sequence, under_way.sequence))
