"""Messages kept for those who may lack them: a new neighbour, a peer that was cut off, the other half of a split."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from weft.wire import PeerId
from weft.wire.broadcast import forwarded


class Kept(NamedTuple):
    """One message with what its next copy must say."""

    author: PeerId
    sequence: int
    frame: bytes
    hops: int
    age_ms: int
    """Its age when it came."""
    came_at: float

    def copy(self, now: float) -> bytes:
        """The frame to send now: one hop further, older by the time we held it."""
        return forwarded(self.frame, self.hops + 1, self.age_ms + int((now - self.came_at) * 1000))


class Retention:
    """In order of arrival, bounded by age and by bytes. Positions in the log only grow."""

    def __init__(self, retention_s: float, bytes_max: int) -> None:
        self._retention_ms = int(retention_s * 1000)
        self._bytes_max = bytes_max
        self._log: deque[Kept] = deque()
        self._by_name: dict[tuple[PeerId, int], Kept] = {}
        self._start = 0
        self.held_bytes = 0

    @property
    def end(self) -> int:
        """The log position of the next message."""
        return self._start + len(self._log)

    def add(self, kept: Kept) -> None:
        self._log.append(kept)
        self._by_name[kept.author, kept.sequence] = kept
        self.held_bytes += len(kept.frame)
        while self.held_bytes > self._bytes_max:
            self._drop_oldest()

    def get(self, author: PeerId, sequence: int) -> Kept | None:
        return self._by_name.get((author, sequence))

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
        del self._by_name[kept.author, kept.sequence]
