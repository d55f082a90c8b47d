"""Fragmentation and reassembly of messages that are too large for one frame.

Each fragment is broadcast as a message with its own sequence number, so large and small messages share the links. A
large message is delivered at the position of its last fragment, or reported as missed there. If the last fragment does
not come, because the author has crashed or canceled the message, it is reported as missed after a while.
"""

import struct
from collections import Counter
from collections.abc import Callable, Iterator

from broadloom.protocol.events import Batch, Message, Missed
from broadloom.wire import PeerId
from broadloom.wire.payload_kind import PayloadKind

FRAGMENT_BYTES = 64 << 10
"""Larger messages are split. Small enough that other messages are not delayed noticeably behind a fragment."""
PARTIAL_MESSAGES_MAX = 256
"""Incomplete messages held at a time. Beyond that, the stalest one of the author with the most is abandoned."""
STALE_CHECKS = 4
"""A message that got no fragment between this many checks is abandoned (`abandon_stale`)."""

_HEADER = struct.Struct(">IIII")
"""Message number at its author, fragment index, fragment count, payload kind of the whole message."""


def fragment(number: int, data: bytes, kind: int) -> Iterator[bytes]:
    view = memoryview(data)
    count = -(-len(data) // FRAGMENT_BYTES)
    for index in range(count):
        head = _HEADER.pack(number & 0xFFFFFFFF, index, count, kind)
        yield b"".join((head, view[index * FRAGMENT_BYTES : (index + 1) * FRAGMENT_BYTES]))


class _Partial:
    __slots__ = ("data", "fragment_count", "idle_checks", "is_discarded", "sequence")

    def __init__(self) -> None:
        self.data = bytearray()
        self.fragment_count = 0
        self.sequence = 0
        """Of the last fragment received."""
        self.is_discarded = False
        self.idle_checks = 0
        """Calls of `abandon_stale` since the last fragment."""


class Reassembler:
    """The incomplete large messages of a channel."""

    def __init__(
        self,
        bytes_max: int,
        report_missed: Callable[[Missed], None],
        on_undelivered: Callable[[PeerId, int], None],
    ) -> None:
        self._bytes_max = bytes_max
        """Limit for one message; all incomplete messages together may hold twice as much."""
        self._report_missed = report_missed
        self._on_undelivered = on_undelivered
        """Called with the last fragment of each message that is not delivered, reported as missed or not: a receipt is
        about that number."""
        self._partials: dict[tuple[PeerId, int], _Partial] = {}
        """In order of last progress, the stalest first."""
        self.held_bytes = 0
        self.reports_headless = False
        """Whether messages whose beginning was sent before this program joined are reported as missed at their end."""

    def __len__(self) -> int:
        return len(self._partials)

    def feed(self, batch: Batch) -> Iterator[Batch]:
        """Add fragments; yields each message that is now complete."""
        for message in batch:
            if len(message.data) < _HEADER.size:
                continue
            number, index, count, kind = _HEADER.unpack_from(message.data)
            key = message.author, number
            partial = self._partials.pop(key, None)
            if index == 0:
                if partial is not None:
                    self._abandon(key, partial)  # restarted before its end
                partial = self._begin()
            if partial is None:  # it began before we joined, or its beginning was reported as missed
                if index + 1 >= count:
                    self._on_undelivered(message.author, message.sequence)
                    if self.reports_headless:
                        self._report_missed(Missed(message.author, message.sequence, message.sequence))
                continue
            self._partials[key] = partial
            self._add(partial, index, message)
            if index + 1 >= count:
                data = self._complete(key, partial, kind)
                if data is None:
                    self._on_undelivered(message.author, message.sequence)
                else:
                    yield Batch(message.author, message.sequence, (data,), message.hops, kind)

    def abandon_stale(self) -> None:
        """Abandon each message that has got no fragment during the last `STALE_CHECKS` calls. Counting calls instead of
        time tolerates a process that was suspended: its sockets may still hold the fragments."""
        for key, partial in list(self._partials.items()):
            partial.idle_checks += 1
            if partial.idle_checks >= STALE_CHECKS:
                self._abandon(key, self._partials.pop(key))

    def _begin(self) -> _Partial:
        if len(self._partials) >= PARTIAL_MESSAGES_MAX:
            counts = Counter(author for author, _ in self._partials)
            most = max(counts, key=counts.__getitem__)  # an author that floods beginnings only harms itself
            oldest = next(key for key in self._partials if key[0] == most)
            self._abandon(oldest, self._partials.pop(oldest))
        return _Partial()

    def _add(self, partial: _Partial, index: int, message: Message) -> None:
        size = len(message.data) - _HEADER.size
        partial.sequence, partial.idle_checks = message.sequence, 0
        if partial.is_discarded or index != partial.fragment_count or len(partial.data) + size > self._bytes_max:
            self._discard_data(partial)  # a fragment was missed, or the message exceeds the limit
            return
        self._make_room(size)
        if not partial.is_discarded:
            partial.data += memoryview(message.data)[_HEADER.size :]
            partial.fragment_count += 1
            self.held_bytes += size

    def _make_room(self, size: int) -> None:
        """Discard the stalest message first: its author may be gone."""
        while self.held_bytes + size > 2 * self._bytes_max:
            self._discard_data(next(each for each in self._partials.values() if each.data))

    def _discard_data(self, partial: _Partial) -> None:
        """The entry stays, so that the message is reported as missed at the position of its last fragment."""
        self.held_bytes -= len(partial.data)
        partial.data, partial.is_discarded = bytearray(), True

    def _complete(self, key: tuple[PeerId, int], partial: _Partial, kind: int) -> bytes | None:
        del self._partials[key]
        if partial.is_discarded or kind == PayloadKind.FRAGMENT:
            self._abandon(key, partial)
            return None
        self.held_bytes -= len(partial.data)
        return bytes(partial.data)

    def _abandon(self, key: tuple[PeerId, int], partial: _Partial) -> None:
        self.held_bytes -= len(partial.data)
        self._report_missed(Missed(key[0], partial.sequence, partial.sequence))
