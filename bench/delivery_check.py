"""What one process received. Every message is checked, so that no loss or duplicate goes unnoticed.

The check is the same for every system and part of what is measured, so it is as cheap as possible: closures with local
names only. Special messages are recognized by a lookup that fails, which costs ordinary messages nothing. A process's
own messages, which some systems return, do not count.
"""

import struct
import time
from collections.abc import Callable, Iterable

HEADER = struct.Struct("<HIq")
"""Author, sequence, and send time (ns on the clock that all processes of a machine share)."""

WARMUP_SEQUENCE = 0xFFFF_FFFF
"""Sequence of the messages that check whether all processes are connected."""

CAPACITY_MIN = 1 << 16

Emit = Callable[..., None]


class DeliveryCheck:
    def __init__(self, own_index: int, *, timed: bool, emit: Emit) -> None:
        self.received = 0
        self.duplicates = 0
        self.missed = 0
        """Messages that the system reported as lost to this process."""
        self.errors = 0
        """Errors (a broken connection, a full queue) that the system reported without naming the lost messages."""
        self.warmed_authors: set[int] = set()
        self.latencies_ns: list[int] = []
        self._own_index = own_index
        self._emit = emit
        self._seen: dict[int, bytearray] = {}
        self._expected = 0
        self._report_at = 1
        self.deliver, self.deliver_many = self._make_handlers(timed)

    def expect(self, count: int) -> None:
        """Expect this many more messages; `done` is emitted when they have arrived."""
        self.latencies_ns.clear()
        self._expected = self.received + count
        self._report_at = self._expected if self.received else 1

    def gaps(self) -> int:
        """Messages missing between the first and the last one of each author."""
        missing = 0
        for seen in self._seen.values():
            first, last = seen.find(1), seen.rfind(1)
            if first >= 0:
                missing += seen.count(0, first, last)
        return missing

    def _make_handlers(self, timed: bool) -> tuple[Callable[[bytes], None], Callable[[Iterable[bytes]], None]]:
        unpack, now_ns, own_index, seen = HEADER.unpack_from, time.monotonic_ns, self._own_index, self._seen
        note_latency = self.latencies_ns.append

        def deliver(payload: bytes) -> None:
            author, sequence, sent_ns = unpack(payload)
            if author == own_index:
                return
            try:
                if seen[author][sequence]:
                    self.duplicates += 1
                    return
                seen[author][sequence] = 1
            except LookupError:
                if not self._is_new(author, sequence):
                    return
            if timed:
                note_latency(now_ns() - sent_ns)
            self.received += 1
            if self.received >= self._report_at:
                self._report()

        def deliver_many(payloads: Iterable[bytes]) -> None:
            fresh = 0
            for payload in payloads:
                author, sequence, sent_ns = unpack(payload)
                if author == own_index:
                    continue
                try:
                    if seen[author][sequence]:
                        self.duplicates += 1
                        continue
                    seen[author][sequence] = 1
                except LookupError:
                    if not self._is_new(author, sequence):
                        continue
                if timed:
                    note_latency(now_ns() - sent_ns)
                fresh += 1
            self.received += fresh
            if self.received >= self._report_at and fresh:
                self._report()

        return deliver, deliver_many

    def _is_new(self, author: int, sequence: int) -> bool:
        """The slow way: warming messages, and those for which there is no room yet."""
        if sequence == WARMUP_SEQUENCE:
            self.warmed_authors.add(author)
            return False
        seen = self._seen.setdefault(author, bytearray(CAPACITY_MIN))
        if sequence >= len(seen):
            seen.extend(bytes(max(len(seen), sequence + 1 - len(seen))))
        seen[sequence] = 1
        return True

    def _report(self) -> None:
        now_ns = time.monotonic_ns()
        if self._report_at == 1:
            self._emit("first", now_ns)
            self._report_at = self._expected or 1 << 62
        if self._expected and self.received >= self._expected:
            self._emit("done", now_ns)
            self._report_at = 1 << 62
