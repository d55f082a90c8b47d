"""Messages that are too large for one frame: sent in parts, put together again where they are delivered.

Every part is a message of the fabric, with a sequence of its own, so parts of several large messages and small ones
between them share the links. A large message is delivered in the place of its last part, or told as missed there.
"""

import struct
from collections import Counter
from collections.abc import Callable, Iterator

from broadloom.protocol.events import Batch, Message, Missed
from broadloom.wire import PeerId
from broadloom.wire.broadcast_frame import PayloadKind

FRAGMENT_BYTES = 64 << 10
"""Larger messages are sent in parts of this size. Small enough that nobody waits long behind one."""
PARTIAL_MESSAGES_MAX = 256
"""Large messages under way at a time; for one more, the one that has not moved for longest is given up, of the author
that has most of them."""

_HEADER = struct.Struct(">IIII")
"""Number of the large message at its author, this part, parts in all, kind of the whole."""


def fragment(number: int, data: bytes, kind: int) -> Iterator[bytes]:
    """What to send, one after the other."""
    view = memoryview(data)
    count = -(-len(data) // FRAGMENT_BYTES)
    for index in range(count):
        head = _HEADER.pack(number & 0xFFFFFFFF, index, count, kind)
        yield b"".join((head, view[index * FRAGMENT_BYTES : (index + 1) * FRAGMENT_BYTES]))


class _Partial:
    __slots__ = ("data", "fragment_count", "is_discarded", "sequence")

    def __init__(self) -> None:
        self.data = bytearray()
        self.fragment_count = 0
        """That have come."""
        self.sequence = 0
        """Of the last of them."""
        self.is_discarded = False


class Reassembler:
    """The large messages of a channel that have not come to their end."""

    def __init__(self, bytes_max: int, report_missed: Callable[[Missed], None]) -> None:
        self._bytes_max = bytes_max
        """Of one message; all that are under way may have twice as much."""
        self._report_missed = report_missed
        self._partials: dict[tuple[PeerId, int], _Partial] = {}
        """The one that moved last stands at the end."""
        self.held_bytes = 0

    def __len__(self) -> int:
        """Large messages under way."""
        return len(self._partials)

    def feed(self, batch: Batch) -> Iterator[Batch]:
        """Parts came; yields what is whole now."""
        for message in batch:
            if len(message.data) < _HEADER.size:
                continue
            number, index, count, kind = _HEADER.unpack_from(message.data)
            name = message.author, number
            partial = self._partials.pop(name, None)
            if index == 0:
                if partial is not None:
                    self._abandon(name, partial)  # begun anew before its end
                partial = self._begin()
            if partial is None:
                continue  # it began before our time, or we were told that its first part is missed
            self._partials[name] = partial
            self._add(partial, index, message)
            if index + 1 >= count:
                data = self._complete(name, partial, kind)
                if data is not None:
                    yield Batch(message.author, message.sequence, (data,), message.hops, kind)

    def _begin(self) -> _Partial:
        if len(self._partials) >= PARTIAL_MESSAGES_MAX:
            counts = Counter(author for author, _ in self._partials)
            most = max(counts, key=counts.__getitem__)  # who begins without end harms itself
            oldest = next(name for name in self._partials if name[0] == most)
            self._abandon(oldest, self._partials.pop(oldest))
        return _Partial()

    def _add(self, partial: _Partial, index: int, message: Message) -> None:
        size = len(message.data) - _HEADER.size
        partial.sequence = message.sequence
        if partial.is_discarded or index != partial.fragment_count or len(partial.data) + size > self._bytes_max:
            self._discard_data(partial)  # a part was missed, or it is larger than we take
            return
        self._make_room(size)
        if not partial.is_discarded:
            partial.data += memoryview(message.data)[_HEADER.size :]
            partial.fragment_count += 1
            self.held_bytes += size

    def _make_room(self, size: int) -> None:
        """Who has not moved for longest gives way: perhaps its author is gone, and it will never end."""
        while self.held_bytes + size > 2 * self._bytes_max:
            self._discard_data(next(each for each in self._partials.values() if each.data))

    def _discard_data(self, partial: _Partial) -> None:
        """Its place is kept, so that it can be told as missed where it would have been delivered."""
        self.held_bytes -= len(partial.data)
        partial.data, partial.is_discarded = bytearray(), True

    def _complete(self, name: tuple[PeerId, int], partial: _Partial, kind: int) -> bytes | None:
        """Its last part is here."""
        del self._partials[name]
        if partial.is_discarded or kind == PayloadKind.FRAGMENT:
            self._abandon(name, partial)
            return None
        self.held_bytes -= len(partial.data)
        return bytes(partial.data)

    def _abandon(self, name: tuple[PeerId, int], partial: _Partial) -> None:
        """It will not be delivered, whatever may still come of it."""
        self.held_bytes -= len(partial.data)
        self._report_missed(Missed(name[0], partial.sequence, partial.sequence))
