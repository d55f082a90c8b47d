"""`MessageSet`: messages of one group, as the sequence numbers of each author. No author has an empty set."""

from collections.abc import Iterable, Iterator

from broadloom.groups.intervals import Interval, IntervalSet
from broadloom.groups.message_fields import AuthorIntervals
from broadloom.groups.model import MemberId, MessageId

Entries = Iterable[tuple[MemberId, Iterable[Interval]]]
"""The items of a `MessageSet`, or its form in a message."""


class MessageSet(dict[MemberId, IntervalSet]):
    def __init__(self, entries: Entries = ()) -> None:
        super().__init__()
        self.add_all(entries)

    @property
    def count(self) -> int:
        return sum(intervals.count for intervals in self.values())

    def ids(self) -> Iterator[MessageId]:
        for author, intervals in self.items():
            for first, last in intervals:
                for sequence in range(first, last + 1):
                    yield MessageId(author, sequence)

    def has(self, message_id: MessageId) -> bool:
        intervals = self.get(message_id[0])
        return intervals is not None and message_id[1] in intervals

    def add(self, message_id: MessageId) -> None:
        self.setdefault(message_id[0], IntervalSet()).add(message_id[1])

    def add_all(self, entries: Entries) -> None:
        for author, intervals in entries:
            for first, last in intervals:
                self.setdefault(author, IntervalSet()).add_interval(first, last)

    def remove(self, message_id: MessageId) -> None:
        author, sequence = message_id
        self.remove_all([(author, [(sequence, sequence)])])

    def remove_all(self, entries: Entries) -> None:
        for author, intervals in entries:
            own = self.get(author)
            if own is not None:
                for first, last in intervals:
                    own.remove_interval(first, last)
                if not own.count:
                    del self[author]

    def has_all(self, entries: Entries) -> bool:
        return all(author in self and self[author].covers(intervals) for author, intervals in entries)

    def minus(self, *others: "MessageSet") -> "MessageSet":
        """A copy without the messages of the others."""
        rest = MessageSet()
        for author, intervals in self.items():
            left = intervals.copy()
            for other in others:
                for first, last in other.get(author, ()):
                    left.remove_interval(first, last)
            if left.count:
                rest[author] = left
        return rest

    def encode(self, intervals_max: int) -> tuple[AuthorIntervals, ...]:
        """As fields of a message, with at most this many intervals."""
        encoded: list[AuthorIntervals] = []
        for author, intervals in self.items():
            if intervals_max <= 0:
                break
            encoded.append(AuthorIntervals(author, tuple(intervals)[:intervals_max]))
            intervals_max -= len(encoded[-1].intervals)
        return tuple(encoded)
