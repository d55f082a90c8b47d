"""What is kept: the interface of stores, and the one in memory. The one on disk is `sqlite_store.py`.

The rule: a message goes into history when it is delivered, so the order of the rows is an order that fits, and whoever
gets them in this order need not wait. What was thrown away is remembered as intervals: it was had.
"""

from typing import NamedTuple, Protocol

from weft.groups.fields import Roster
from weft.groups.intervals import Intervals
from weft.groups.names import GroupId, Member, MemberId, MessageId, Post
from weft.groups.settings import Keep

POST_COST_BYTES = 64
"""What a message counts for in a history, beside its data."""


class KeptGroup(NamedTuple):
    """A group as a store remembers it."""

    roster: Roster
    joined: bool


class History(Protocol):
    """The messages of one group."""

    names: dict[MemberId, str]
    """Of authors."""
    count: int
    size_bytes: int

    def add(self, post: Post, name: str) -> None:
        """Keep it; it is not there yet."""

    def get(self, named: MessageId) -> Post | None: ...

    def answers(self, named: MessageId) -> list[MessageId]:
        """What responds to this message, in order of delivery."""

    def scan(self, after_row: int, rows_max: int) -> list[tuple[int, Post]]:
        """Messages in order of delivery with the numbers of their rows, which grow."""

    def held(self) -> dict[MemberId, Intervals]:
        """What is kept."""

    def forgotten(self) -> dict[MemberId, Intervals]:
        """What was kept once, and was thrown away."""

    def prune(self, keep: Keep, now_ms: int) -> int:
        """Throw away what need not be kept; returns how many."""


class Store(Protocol):
    """All that one member keeps."""

    def member(self) -> Member | None:
        """Who this store belongs to; None if it is new."""

    def set_member(self, member: Member) -> None: ...

    def groups(self) -> list[KeptGroup]: ...

    def save_group(self, kept: KeptGroup) -> None: ...

    def history(self, group: GroupId) -> History: ...

    def commit(self) -> None:
        """Make sure that all this outlives the process."""

    def close(self) -> None: ...


class MemoryHistory:
    def __init__(self) -> None:
        self.names: dict[MemberId, str] = {}
        self.count = 0
        self.size_bytes = 0
        self._rows: list[MessageId] = []
        self._first_row = 1
        """The number of the first element of `_rows`."""
        self._pruned = 0
        """Elements at the beginning of `_rows` that were thrown away; cut off now and then."""
        self._posts: dict[MessageId, tuple[int, Post]] = {}
        self._answers: dict[MessageId, list[MessageId]] = {}
        self._forgotten: dict[MemberId, Intervals] = {}

    def add(self, post: Post, name: str) -> None:
        self.names[post.author] = name
        named = post.id
        self._posts[named] = (self._first_row + len(self._rows), post)
        self._rows.append(named)
        self.count += 1
        self.size_bytes += len(post.data) + POST_COST_BYTES
        if post.parent is not None:
            self._answers.setdefault(post.parent, []).append(named)

    def get(self, named: MessageId) -> Post | None:
        found = self._posts.get(named)
        return found[1] if found is not None else None

    def answers(self, named: MessageId) -> list[MessageId]:
        return [each for each in self._answers.get(named, ()) if each in self._posts]

    def scan(self, after_row: int, rows_max: int) -> list[tuple[int, Post]]:
        start = max(after_row + 1 - self._first_row, self._pruned)
        return [self._posts[named] for named in self._rows[start : start + rows_max]]

    def held(self) -> dict[MemberId, Intervals]:
        held: dict[MemberId, Intervals] = {}
        for author, sequence in sorted(self._posts):
            held.setdefault(author, Intervals()).add(sequence)
        return held

    def forgotten(self) -> dict[MemberId, Intervals]:
        return self._forgotten

    def prune(self, keep: Keep, now_ms: int) -> int:
        pruned = 0
        while self.count and _is_too_much(keep, self.count, self.size_bytes, self._oldest_ms, now_ms):
            named = self._rows[self._pruned]
            self._pruned += 1
            _, post = self._posts.pop(named)
            self.count -= 1
            self.size_bytes -= len(post.data) + POST_COST_BYTES
            self._answers.pop(named, None)
            self._forgotten.setdefault(named.author, Intervals()).add(named.sequence)
            pruned += 1
        if 2 * self._pruned > len(self._rows):
            del self._rows[: self._pruned]
            self._first_row += self._pruned
            self._pruned = 0
        return pruned

    @property
    def _oldest_ms(self) -> int:
        return self._posts[self._rows[self._pruned]][1].sent_ms


def _is_too_much(keep: Keep, count: int, size_bytes: int, oldest_ms: int, now_ms: int) -> bool:
    return (
        (keep.messages > 0 and count > keep.messages)
        or (keep.total_bytes > 0 and size_bytes > keep.total_bytes)
        or (keep.age_s > 0 and oldest_ms < now_ms - 1000 * keep.age_s)
    )


class MemoryStore:
    """Forgotten with the process."""

    def __init__(self) -> None:
        self._member: Member | None = None
        self._groups: dict[GroupId, KeptGroup] = {}
        self._histories: dict[GroupId, MemoryHistory] = {}

    def member(self) -> Member | None:
        return self._member

    def set_member(self, member: Member) -> None:
        self._member = member

    def groups(self) -> list[KeptGroup]:
        return list(self._groups.values())

    def save_group(self, kept: KeptGroup) -> None:
        self._groups[kept.roster.group] = kept

    def history(self, group: GroupId) -> History:
        return self._histories.setdefault(group, MemoryHistory())

    def commit(self) -> None:
        """Nothing outlives the process."""

    def close(self) -> None:
        """It may be opened again within the process, as a test of a return does."""
