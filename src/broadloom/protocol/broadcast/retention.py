"""Retention: frames kept for peers that may lack them: a new neighbor, a peer that was cut off, another partition."""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from broadloom.wire import Broadcast, Frame, PeerId
from broadloom.wire.broadcast_frame import Dissemination, Priority, relayed

_TREE, _NORMAL = int(Dissemination.TREE), int(Priority.NORMAL)
_UNINDEXED_MAX = 64
"""Frames of the fast path that wait for their place in the log. Indexing many at a time is cheaper, and most are never
asked for before the next tick."""
_SPENT_MAX = 64
"""Removed entries at the front of a list before it is compacted."""


class RetainedFrame(NamedTuple):
    """One frame, and what the header of its next copy needs."""

    author: PeerId
    first: int
    last: int
    frame: Frame
    hops: int
    age_ms: int
    """Its age when it arrived."""
    received_at: float
    received_from: PeerId = 0
    """This neighbor needs no copy. 0: this peer is the author."""
    dissemination: int = Dissemination.FLOOD
    priority: int = Priority.NORMAL
    ttl_ms: int = 0

    @classmethod
    def from_message(cls, message: Broadcast, frame: Frame, now: float, received_from: PeerId) -> "RetainedFrame":
        return cls(
            message.author,
            message.sequence,
            message.last_sequence,
            frame,
            message.hops,
            message.age_ms,
            now,
            received_from,
            message.dissemination,
            message.priority,
            message.ttl_ms,
        )

    def copy(self, now: float) -> tuple[bytes, memoryview | None]:
        """The frame to send now, in one part or two: one hop further, and older by the time it was retained."""
        return relayed(self.frame, self.hops + 1, self.age_ms + int((now - self.received_at) * 1000))

    def has_expired(self, now: float) -> bool:
        """Whether its TTL is over."""
        return bool(self.ttl_ms) and self.age_ms + (now - self.received_at) * 1000 > self.ttl_ms


_Kept = tuple[int, int, int, Frame, int, int, float, int, int, int, int]
"""The fields of a `RetainedFrame` as plain numbers and bytes. Python's garbage collector leaves such tuples alone; it
would visit every named one, with pauses that grow with retention."""


class _AuthorFrames:
    """The frames of one author by sequence number. They are added and removed nearly in order."""

    __slots__ = ("_firsts", "_frames", "_spent")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._spent = 0
        self._frames: dict[int, _Kept] = {}

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, kept: _Kept) -> None:
        first = kept[1]
        if first in self._frames:
            return
        self._frames[first] = kept
        if not self._firsts or first > self._firsts[-1]:
            self._firsts.append(first)
        else:
            insort(self._firsts, first, self._spent)

    def remove(self, kept: _Kept) -> None:
        first = kept[1]
        if self._frames.get(first) is not kept:
            return
        del self._frames[first]
        index = bisect_left(self._firsts, first, self._spent)
        if index == self._spent:
            self._spent += 1
            if self._spent > _SPENT_MAX and 2 * self._spent > len(self._firsts):
                del self._firsts[: self._spent]
                self._spent = 0
        else:
            del self._firsts[index]

    def starting_at(self, first: int) -> RetainedFrame | None:
        kept = self._frames.get(first)
        return RetainedFrame(*kept) if kept is not None else None

    def in_range(self, first: int, last: int) -> Iterator[RetainedFrame]:
        """Frames that overlap the range, in order."""
        start = max(bisect_right(self._firsts, first, self._spent) - 1, self._spent)
        for index in range(start, len(self._firsts)):
            retained = RetainedFrame(*self._frames[self._firsts[index]])
            if retained.first > last:
                return
            if retained.last >= first:
                yield retained


class RetentionBuffer:
    """A log in order of arrival, bounded by age and by bytes. Positions in the log only grow."""

    def __init__(self, retention_s: float, bytes_max: int) -> None:
        self._retention_ms = int(retention_s * 1000)
        self._bytes_max = bytes_max
        self._log: deque[_Kept] = deque()
        self._by_author: dict[PeerId, _AuthorFrames] = {}
        self._start = 0
        self._retained_bytes = 0
        self._unindexed: list[_Kept] = []

    @property
    def retained_bytes(self) -> int:
        self._index()
        return self._retained_bytes

    @property
    def end(self) -> int:
        """The log position of the next frame."""
        self._index()
        return self._start + len(self._log)

    def add_single(
        self,
        author: PeerId,
        sequence: int,
        frame: Frame,
        hops: int,
        age_ms: int,
        received_at: float,
        received_from: PeerId,
    ) -> None:
        """Add a frame with one message of normal priority that came along a tree."""
        rest = int(received_from), _TREE, _NORMAL, 0
        self._unindexed.append((int(author), sequence, sequence, frame, hops, age_ms, received_at, *rest))
        if len(self._unindexed) >= _UNINDEXED_MAX:
            self._index()

    def _index(self) -> None:
        """Everything that reads the log calls this first."""
        if self._unindexed:
            unindexed, self._unindexed = self._unindexed, []
            for kept in unindexed:
                self._keep(kept)

    def add(self, retained: RetainedFrame) -> None:
        self._index()
        received_from, dissemination, priority, ttl_ms = retained[7:]
        rest = int(received_from), int(dissemination), int(priority), ttl_ms
        self._keep((int(retained.author), *retained[1:7], *rest))

    def _keep(self, kept: _Kept) -> None:
        self._log.append(kept)
        author = kept[0]
        frames = self._by_author.get(author)
        if frames is None:
            frames = self._by_author[author] = _AuthorFrames()
        frames.add(kept)
        self._retained_bytes += len(kept[3])
        while self._retained_bytes > self._bytes_max:
            self._drop_oldest()

    def in_range(self, author: PeerId, first: int, last: int) -> Iterator[RetainedFrame]:
        self._index()
        frames = self._by_author.get(author)
        return frames.in_range(first, last) if frames is not None else iter(())

    def starting_at(self, author: PeerId, first: int) -> RetainedFrame | None:
        """The frame that begins with this message."""
        self._index()
        frames = self._by_author.get(author)
        return frames.starting_at(first) if frames is not None else None

    def get(self, author: PeerId, sequence: int) -> RetainedFrame | None:
        """The frame that contains this message."""
        return next(self.in_range(author, sequence, sequence), None)

    def before(self, position: int) -> Iterator[RetainedFrame]:
        """Frames before a log position, in order of arrival."""
        self._index()
        for offset, kept in enumerate(self._log):
            if self._start + offset >= position:
                return
            yield RetainedFrame(*kept)

    def expire(self, now: float) -> None:
        """Drop frames past `retention_s`. A frame that arrived late may stay longer, behind a younger one; every copy
        carries its age, so no peer takes it for new."""
        self._index()
        while self._log:
            age_ms, received_at = self._log[0][5:7]
            if age_ms + (now - received_at) * 1000 < self._retention_ms:
                return
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._log.popleft()
        self._start += 1
        author = oldest[0]
        self._retained_bytes -= len(oldest[3])
        frames = self._by_author.get(author)
        if frames is not None:  # the second of two frames with the same messages is not among them
            frames.remove(oldest)
            if not frames:
                del self._by_author[author]
