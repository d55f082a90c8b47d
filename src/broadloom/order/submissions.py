"""`Submissions`: messages that wait for their place in the order, our own and those of other members.

Every participant keeps them, because each may become the sequencer. Those of others are limited in number and bytes;
what exceeds the limits is dropped, and its author sends it again.
"""

from collections.abc import Iterator
from typing import NamedTuple

from broadloom.order.log import LogEntry, OrderLog
from broadloom.order.settings import PENDING_MAX, PENDING_PER_MEMBER_MAX, OrderSettings
from broadloom.wire import PeerId


class Submission(NamedTuple):
    key: bytes
    data: bytes
    since_s: float


class Submissions:
    def __init__(self, me: PeerId, log: OrderLog, settings: OrderSettings) -> None:
        self._me = me
        self._log = log
        self._settings = settings
        self._by_author: dict[PeerId, dict[int, Submission]] = {}
        self._last_own = 0
        self.count = 0
        """Of other members."""
        self.size_bytes = 0
        self.dropped_count = 0

    @property
    def own(self) -> dict[int, Submission]:
        """By submission number, in order."""
        return self._by_author.get(self._me, {})

    @property
    def has_room(self) -> bool:
        """Whether one more of our own is allowed."""
        return len(self.own) < PENDING_PER_MEMBER_MAX

    def add_own(self, key: bytes, data: bytes, now: float) -> int:
        # A conversation that was open before in this program has entries of ours, whose numbers continue.
        self._last_own = max(self._last_own, self._log.last_numbers.get(self._me, 0)) + 1
        self._by_author.setdefault(self._me, {})[self._last_own] = Submission(key, data, now)
        return self._last_own

    def put_back_own(self, entries: list[LogEntry], now: float) -> None:
        """Our own entries were revoked: they wait again."""
        own = {entry.number: Submission(entry.key, entry.data, now) for entry in entries if entry.author == self._me}
        if own:
            self._by_author[self._me] = dict(sorted({**own, **self.own}.items()))

    def add(self, author: PeerId, number: int, key: bytes, data: bytes, now: float) -> bool:
        """Returns whether it is new."""
        last = self._log.last_numbers.get(author, 0)
        waiting = self._by_author.get(author, {})
        if author == self._me or number <= last or number in waiting:
            return False
        if number > last + PENDING_PER_MEMBER_MAX or not self._has_space(len(data)):
            self.dropped_count += 1
            return False
        waiting[number] = Submission(key, data, now)
        self._by_author[author] = waiting
        self.count += 1
        self.size_bytes += len(data)
        return True

    def _has_space(self, size: int) -> bool:
        return self.count < PENDING_MAX and self.size_bytes + size <= self._settings.pending_bytes_max

    def get(self, author: PeerId, number: int) -> Submission | None:
        waiting = self._by_author.get(author)
        return waiting.get(number) if waiting is not None else None

    def ready(self) -> Iterator[tuple[PeerId, int, Submission]]:
        """Submissions that can be ordered now: those without a gap before them, author by author."""
        for author, waiting in list(self._by_author.items()):
            number = self._log.last_numbers.get(author, 0) + 1
            while (submission := waiting.get(number)) is not None:
                yield author, number, submission
                number += 1

    def on_ordered(self, entries: list[LogEntry]) -> None:
        for entry in entries:
            waiting = self._by_author.get(entry.author)
            submission = waiting.pop(entry.number, None) if waiting is not None else None
            if waiting is None or submission is None:
                continue
            if not waiting:
                del self._by_author[entry.author]
            if entry.author != self._me:
                self._forget(submission)

    def drop_older_than(self, at_s: float) -> None:
        """Drop what others sent before this time."""
        for author, waiting in list(self._by_author.items()):
            if author != self._me and all(submission.since_s < at_s for submission in waiting.values()):
                del self._by_author[author]
                for submission in waiting.values():
                    self._forget(submission)

    def drop_outdated(self) -> None:
        """After the log has changed: what it contains does not wait any more."""
        for author, waiting in list(self._by_author.items()):
            last = self._log.last_numbers.get(author, 0)
            for number in [each for each in waiting if each <= last]:
                submission = waiting.pop(number)
                if author != self._me:
                    self._forget(submission)
            if not waiting:
                del self._by_author[author]

    def _forget(self, submission: Submission) -> None:
        self.count -= 1
        self.size_bytes -= len(submission.data)
