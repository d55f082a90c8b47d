"""What is kept: the interface of stores, and the one in memory. The one on disk is `sqlite_store.py`.

The rule: a message goes into history when it is delivered, so the order of the rows is an order that fits, and whoever
gets them in this order need not wait. What was thrown away is remembered as intervals: it was had.
"""

from typing import NamedTuple, Protocol

from broadloom.groups.intervals import IntervalSet
from broadloom.groups.message_fields import GroupRecord
from broadloom.groups.model import GroupId, Member, MemberId, MessageId, Post
from broadloom.groups.settings import RetentionPolicy

STORED_POST_OVERHEAD_BYTES = 64
"""What a message counts for in a history, beside its data."""


class StoredGroup(NamedTuple):
    """A group as a store remembers it."""

    record: GroupRecord
    is_joined: bool


class History(Protocol):
    """The messages of one group."""

    names: dict[MemberId, str]
    """Of authors."""
    count: int
    size_bytes: int

    def add(self, post: Post, name: str) -> None:
        """Keep it; it is not there yet."""

    def get(self, message_id: MessageId) -> Post | None: ...

    def replies(self, message_id: MessageId) -> list[MessageId]:
        """What responds to this message, in order of delivery."""

    def scan(self, after_row: int, rows_max: int) -> list[tuple[int, Post]]:
        """Messages in order of delivery with the numbers of their rows, which grow."""

    def held(self) -> dict[MemberId, IntervalSet]:
        """What is kept."""

    def forgotten(self) -> dict[MemberId, IntervalSet]:
        """What was kept once, and was thrown away."""

    def prune(self, retention: RetentionPolicy, now_ms: int) -> int:
        """Throw away what need not be kept; returns how many."""


class Store(Protocol):
    """All that one member keeps."""

    def member(self) -> Member | None:
        """Who this store belongs to; None if it is new."""

    def set_member(self, member: Member) -> None: ...

    def groups(self) -> list[StoredGroup]: ...

    def save_group(self, stored: StoredGroup) -> None: ...

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
        self._pruned_count = 0
        """Elements at the beginning of `_rows` that were thrown away; cut off now and then."""
        self._posts: dict[MessageId, tuple[int, Post]] = {}
        self._replies: dict[MessageId, list[MessageId]] = {}
        self._forgotten: dict[MemberId, IntervalSet] = {}

    def add(self, post: Post, name: str) -> None:
        self.names[post.author] = name
        message_id = post.id
        self._posts[message_id] = (self._first_row + len(self._rows), post)
        self._rows.append(message_id)
        self.count += 1
        self.size_bytes += len(post.data) + STORED_POST_OVERHEAD_BYTES
        if post.parent_id is not None:
            self._replies.setdefault(post.parent_id, []).append(message_id)

    def get(self, message_id: MessageId) -> Post | None:
        found = self._posts.get(message_id)
        return found[1] if found is not None else None

    def replies(self, message_id: MessageId) -> list[MessageId]:
        return [each for each in self._replies.get(message_id, ()) if each in self._posts]

    def scan(self, after_row: int, rows_max: int) -> list[tuple[int, Post]]:
        start = max(after_row + 1 - self._first_row, self._pruned_count)
        return [self._posts[message_id] for message_id in self._rows[start : start + rows_max]]

    def held(self) -> dict[MemberId, IntervalSet]:
        held: dict[MemberId, IntervalSet] = {}
        for author, sequence in sorted(self._posts):
            held.setdefault(author, IntervalSet()).add(sequence)
        return held

    def forgotten(self) -> dict[MemberId, IntervalSet]:
        return self._forgotten

    def prune(self, retention: RetentionPolicy, now_ms: int) -> int:
        pruned = 0
        while self.count and _exceeds_retention(retention, self.count, self.size_bytes, self._oldest_ms, now_ms):
            message_id = self._rows[self._pruned_count]
            self._pruned_count += 1
            _, post = self._posts.pop(message_id)
            self.count -= 1
            self.size_bytes -= len(post.data) + STORED_POST_OVERHEAD_BYTES
            self._replies.pop(message_id, None)
            self._forgotten.setdefault(message_id.author, IntervalSet()).add(message_id.sequence)
            pruned += 1
        if 2 * self._pruned_count > len(self._rows):
            del self._rows[: self._pruned_count]
            self._first_row += self._pruned_count
            self._pruned_count = 0
        return pruned

    @property
    def _oldest_ms(self) -> int:
        return self._posts[self._rows[self._pruned_count]][1].sent_at_ms


def _exceeds_retention(retention: RetentionPolicy, count: int, size_bytes: int, oldest_ms: int, now_ms: int) -> bool:
    return (
        (retention.messages_max > 0 and count > retention.messages_max)
        or (retention.bytes_max > 0 and size_bytes > retention.bytes_max)
        or (retention.age_max_s > 0 and oldest_ms < now_ms - 1000 * retention.age_max_s)
    )


class MemoryStore:
    """Forgotten with the process."""

    def __init__(self) -> None:
        self._member: Member | None = None
        self._groups: dict[GroupId, StoredGroup] = {}
        self._histories: dict[GroupId, MemoryHistory] = {}

    def member(self) -> Member | None:
        return self._member

    def set_member(self, member: Member) -> None:
        self._member = member

    def groups(self) -> list[StoredGroup]:
        return list(self._groups.values())

    def save_group(self, stored: StoredGroup) -> None:
        self._groups[stored.record.group] = stored

    def history(self, group: GroupId) -> History:
        return self._histories.setdefault(group, MemoryHistory())

    def commit(self) -> None:
        """Nothing outlives the process."""

    def close(self) -> None:
        """It may be opened again within the process, as a test of a return does."""
