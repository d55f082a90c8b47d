"""`OrderLog`: the entries in their order, the epochs that assigned them, and a hash chain over them.

Two logs that share an epoch are equal up to the end of that epoch in the shorter one, because one sequencer wrote it.
So the epochs alone show where two logs fork (as in Kafka, KIP-101 and KIP-279); the chain verifies it.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from broadloom.order.model import NO_EPOCH, Epoch
from broadloom.order.settings import AUTHORS_MAX, LINEAGE_MAX
from broadloom.wire import PeerId

NO_CHAIN = bytes(16)
_HEAD = struct.Struct(">QQQI")
TRIM_FRACTION = 16
"""A log is trimmed when it exceeds its limit by one part in this many."""
ENTRY_OVERHEAD_BYTES = 64


class LogEntry(NamedTuple):
    author: PeerId
    number: int
    """Counts the submissions of the author."""
    original: int
    """If the key was ordered before: the index of that entry, and this one is not delivered. Else 0."""
    key: bytes
    data: bytes


_Kept = tuple[int, int, int, bytes, bytes]
"""The fields of a `LogEntry` as plain numbers and bytes, which Python's garbage collector leaves alone."""


class EpochStart(NamedTuple):
    epoch: Epoch
    first_index: int


class InvalidLogError(ValueError):
    """Entries that do not continue the log."""


def next_chain(chain: bytes, entry: LogEntry) -> bytes:
    head = _HEAD.pack(entry.author, entry.number, entry.original, len(entry.key))
    return hashlib.blake2b(b"".join((chain, head, entry.key, entry.data)), digest_size=16).digest()


def fork_index(one: Sequence[EpochStart], one_end: int, other: Sequence[EpochStart], other_end: int) -> int:
    """The last index that two logs have in common, given their epochs and last indexes."""
    last_of_other = {start.epoch: _last_index(other, place, other_end) for place, start in enumerate(other)}
    for place in reversed(range(len(one))):
        last = last_of_other.get(one[place].epoch)
        if last is not None:
            return min(last, _last_index(one, place, one_end))
    return 0


def _last_index(lineage: Sequence[EpochStart], place: int, end: int) -> int:
    """The last index of an epoch in a log."""
    return lineage[place + 1].first_index - 1 if place + 1 < len(lineage) else end


class OrderLog:
    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self.base = 0
        """The entry before the first one that is kept."""
        self._entries: list[_Kept] = []
        self._chains: list[bytes] = [NO_CHAIN]
        """The chain at `base`, then after each entry."""
        self.lineage: tuple[EpochStart, ...] = ()
        self.last_numbers: dict[PeerId, int] = {}
        """The last submission number of each author; those that were silent for longest come first."""
        self.keys: dict[bytes, int] = {}
        self.size_bytes = 0

    @property
    def end(self) -> int:
        return self.base + len(self._entries)

    @property
    def chain(self) -> bytes:
        return self._chains[-1]

    @property
    def epoch(self) -> Epoch:
        """The last epoch that this log was brought up to."""
        return self.lineage[-1].epoch if self.lineage else NO_EPOCH

    def chain_at(self, index: int) -> bytes | None:
        return self._chains[index - self.base] if self.base <= index <= self.end else None

    def entry(self, index: int) -> LogEntry:
        return LogEntry(*self._entries[index - self.base - 1])

    def epoch_at(self, index: int) -> Epoch:
        """The epoch that assigned this index; an older one than remembered is shown as the oldest."""
        for start in reversed(self.lineage):
            if start.first_index <= index:
                return start.epoch
        return self.lineage[0].epoch if self.lineage else NO_EPOCH

    def slice(self, first_index: int, bytes_max: int, entries_max: int) -> tuple[LogEntry, ...]:
        """Entries from here on, at least one if there is one."""
        found: list[LogEntry] = []
        size = 0
        for kept in self._entries[first_index - self.base - 1 : first_index - self.base - 1 + entries_max]:
            entry = LogEntry(*kept)
            if found and size + len(entry.data) > bytes_max:
                break
            size += len(entry.data) + ENTRY_OVERHEAD_BYTES
            found.append(entry)
        return tuple(found)

    def last_numbers_at(self, index: int) -> dict[PeerId, int]:
        numbers = dict(self.last_numbers)
        for author, number, *_ in reversed(self._entries[index - self.base :]):
            numbers[author] = number - 1
        return {author: number for author, number in numbers.items() if number}

    # -- changes

    def check(self, entries: Iterable[LogEntry], fork: int | None = None) -> bytes:
        """The chain after these entries, put behind the log or behind `fork`. Raises `InvalidLogError` if an author's
        numbers are not consecutive."""
        fork = self.end if fork is None else fork
        numbers = self.last_numbers if fork == self.end else self.last_numbers_at(fork)
        changed: dict[PeerId, int] = {}
        chain = self._chains[fork - self.base]
        for entry in entries:
            last = changed.get(entry.author)
            if entry.number != (numbers.get(entry.author, 0) if last is None else last) + 1:
                raise InvalidLogError(f"submission {entry.number} of {entry.author:016x} is not the next one")
            changed[entry.author] = entry.number
            chain = next_chain(chain, entry)
        return chain

    def append(self, entry: LogEntry) -> None:
        """The entry was checked."""
        self._entries.append((int(entry.author), *entry[1:]))
        self._chains.append(next_chain(self._chains[-1], entry))
        self.last_numbers.pop(entry.author, None)
        self.last_numbers[entry.author] = entry.number
        if len(self.last_numbers) > AUTHORS_MAX:
            del self.last_numbers[next(iter(self.last_numbers))]
        if entry.key and not entry.original:
            self.keys[entry.key] = self.end
        self.size_bytes += len(entry.data) + ENTRY_OVERHEAD_BYTES

    def truncate(self, end: int) -> list[LogEntry]:
        """Remove and return what follows `end`."""
        removed = [LogEntry(*kept) for kept in self._entries[end - self.base :]]
        self.last_numbers = self.last_numbers_at(end) if removed else self.last_numbers
        for entry in removed:
            if entry.key and not entry.original:
                self.keys.pop(entry.key, None)
            self.size_bytes -= len(entry.data) + ENTRY_OVERHEAD_BYTES
        del self._entries[end - self.base :]
        del self._chains[end - self.base + 1 :]
        return removed

    def set_lineage(self, lineage: Sequence[EpochStart]) -> None:
        self.lineage = tuple(lineage[-LINEAGE_MAX:])

    def restart(self, base: int, chain: bytes, last_numbers: dict[PeerId, int]) -> list[LogEntry]:
        """Continue behind entries that are not known here. Returns those that were."""
        removed = [LogEntry(*kept) for kept in self._entries]
        self._entries = []
        self.base, self._chains = base, [chain]
        self.last_numbers, self.keys, self.size_bytes = dict(last_numbers), {}, 0
        self.lineage = ()
        return removed

    def trim(self, up_to: int) -> bool:
        """Drop the oldest entries beyond the limits, at most up to this index, which everyone here is done with."""
        is_full = len(self._entries) > self._entries_max + self._entries_max // TRIM_FRACTION
        if not is_full and self.size_bytes <= self._bytes_max + self._bytes_max // TRIM_FRACTION:
            return False
        count = 0
        for _, _, _, key, data in self._entries[: max(0, up_to - self.base)]:
            if len(self._entries) - count <= self._entries_max and self.size_bytes <= self._bytes_max:
                break
            count += 1
            self.size_bytes -= len(data) + ENTRY_OVERHEAD_BYTES
            if key and self.keys.get(key, 0) <= self.base + count:
                self.keys.pop(key, None)
        del self._entries[:count]
        del self._chains[:count]
        self.base += count
        return count > 0
