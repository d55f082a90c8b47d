"""Frames kept for those who may lack them: a new neighbour, a peer that was cut off, the other half of a split."""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from weft.wire import Broadcast, PeerId
from weft.wire.broadcast import Priority, Way, forwarded

_SPENT_MAX = 64
"""Places at the front of a shelf that are left empty before it is moved up."""


class Kept(NamedTuple):
    """One frame with what its next copy must say."""

    author: PeerId
    first: int
    """Sequence of the first message in it."""
    last: int
    frame: bytes
    hops: int
    age_ms: int
    """Its age when it came."""
    came_at: float
    neighbour: PeerId = 0
    """Who brought it: it needs no copy. 0 if it is ours."""
    way: int = Way.FLOOD
    priority: int = Priority.NORMAL
    lifetime_ms: int = 0

    @classmethod
    def of(cls, message: Broadcast, frame: bytes, now: float, neighbour: PeerId) -> "Kept":
        """As it has just come."""
        return cls(
            message.author,
            message.sequence,
            message.last,
            frame,
            message.hops,
            message.age_ms,
            now,
            neighbour,
            message.way,
            message.priority,
            message.lifetime_ms,
        )

    def copy(self, now: float) -> bytes:
        """The frame to send now: one hop further, older by the time we held it."""
        return forwarded(self.frame, self.hops + 1, self.age_ms + int((now - self.came_at) * 1000))

    def has_expired(self, now: float) -> bool:
        """Whether it is no longer worth delivering."""
        return bool(self.lifetime_ms) and self.age_ms + (now - self.came_at) * 1000 > self.lifetime_ms


class _Shelf:
    """The frames of one author, to be found by sequence. They come nearly in order and go nearly in order."""

    __slots__ = ("_firsts", "_kept", "_spent")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._spent = 0
        self._kept: dict[int, Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, kept: Kept) -> None:
        first = kept.first
        if first in self._kept:
            return
        self._kept[first] = kept
        if not self._firsts or first > self._firsts[-1]:
            self._firsts.append(first)
        else:
            insort(self._firsts, first, self._spent)

    def remove(self, kept: Kept) -> None:
        if self._kept.get(kept.first) is not kept:
            return
        del self._kept[kept.first]
        place = bisect_left(self._firsts, kept.first, self._spent)
        if place == self._spent:
            self._spent += 1
            if self._spent > _SPENT_MAX and 2 * self._spent > len(self._firsts):
                del self._firsts[: self._spent]
                self._spent = 0
        else:
            del self._firsts[place]

    def of(self, first: int, last: int) -> Iterator[Kept]:
        """All that touch the range, in order."""
        place = max(bisect_right(self._firsts, first, self._spent) - 1, self._spent)
        for at in range(place, len(self._firsts)):
            kept = self._kept[self._firsts[at]]
            if kept.first > last:
                return
            if kept.last >= first:
                yield kept


class Retention:
    """In order of arrival, bounded by age and by bytes. Positions in the log only grow."""

    def __init__(self, retention_s: float, bytes_max: int) -> None:
        self._retention_ms = int(retention_s * 1000)
        self._bytes_max = bytes_max
        self._log: deque[Kept] = deque()
        self._shelves: dict[PeerId, _Shelf] = {}
        self._start = 0
        self.held_bytes = 0

    @property
    def end(self) -> int:
        """The log position of the next frame."""
        return self._start + len(self._log)

    def add(self, kept: Kept) -> None:
        self._log.append(kept)
        shelf = self._shelves.get(kept.author)
        if shelf is None:
            shelf = self._shelves[kept.author] = _Shelf()
        shelf.add(kept)
        self.held_bytes += len(kept.frame)
        while self.held_bytes > self._bytes_max:
            self._drop_oldest()

    def of(self, author: PeerId, first: int, last: int) -> Iterator[Kept]:
        """What is kept of a range of an author's messages, in order."""
        shelf = self._shelves.get(author)
        return shelf.of(first, last) if shelf is not None else iter(())

    def get(self, author: PeerId, sequence: int) -> Kept | None:
        """The frame with this message in it."""
        return next(self.of(author, sequence, sequence), None)

    def before(self, position: int) -> Iterator[Kept]:
        """What came before a log position, in order of arrival."""
        for offset, kept in enumerate(self._log):
            if self._start + offset >= position:
                return
            yield kept

    def expire(self, now: float) -> None:
        """Drop what is past retention. (An entry that came late may outlast its time behind a younger one; its age
        goes with every copy, so nobody takes it for new.)"""
        while self._log:
            oldest = self._log[0]
            if oldest.age_ms + (now - oldest.came_at) * 1000 < self._retention_ms:
                return
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        kept = self._log.popleft()
        self._start += 1
        self.held_bytes -= len(kept.frame)
        shelf = self._shelves[kept.author]
        shelf.remove(kept)
        if not shelf:
            del self._shelves[kept.author]
