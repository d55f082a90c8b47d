"""The store interface and its in-memory implementation. `SqliteStore` (sqlite_store.py) is the one on disk.

A message is added to history when it is delivered. Rows are therefore in causal order, and a member that receives them
in this order never has to wait for a parent. Pruned messages are remembered as intervals and not fetched again.
"""

from typing import NamedTuple, Protocol

from broadloom.groups.message_fields import GroupRecord
from broadloom.groups.message_set import MessageSet
from broadloom.groups.model import GroupId, Member, MemberId, MessageId, Post
from broadloom.groups.settings import RetentionPolicy

STORED_POST_OVERHEAD_BYTES = 64
"""Size of a stored message for retention, without its data."""


class StoredGroup(NamedTuple):
    record: GroupRecord
    is_joined: bool


class History(Protocol):
    """The messages of one group."""

    names: dict[MemberId, str]
    """Display names of the authors."""
    count: int
    size_bytes: int

    def add(self, post: Post, name: str) -> None:
        """Store a message that is not stored yet."""

    def get(self, message_id: MessageId) -> Post | None: ...

    def replies(self, message_id: MessageId) -> list[MessageId]:
        """Direct replies to a message, in delivery order."""

    def scan(self, after_row: int, rows_max: int) -> list[tuple[int, Post]]:
        """Messages in delivery order with their increasing row numbers."""

    def stored(self) -> MessageSet:
        """Messages in the store."""

    def forgotten(self) -> MessageSet:
        """Pruned messages."""

    def prune(self, retention: RetentionPolicy, now_ms: int) -> int:
        """Apply the retention policy; returns the number of removed messages."""


class Store(Protocol):
    """Everything that one member keeps: its identity, its groups and their history."""

    def member(self) -> Member | None:
        """The owner of the store; None if it is new."""

    def set_member(self, member: Member) -> None: ...

    def groups(self) -> list[StoredGroup]: ...

    def save_group(self, stored: StoredGroup) -> None: ...

    def history(self, group: GroupId) -> History: ...

    def commit(self) -> None:
        """Make all changes durable."""

    def close(self) -> None: ...


class MemoryHistory:
    def __init__(self) -> None:
        self.names: dict[MemberId, str] = {}
        self.count = 0
        self.size_bytes = 0
        self._rows: list[MessageId] = []
        self._first_row = 1
        """Row number of the first element of `_rows`."""
        self._pruned_count = 0
        """Pruned elements at the beginning of `_rows`, removed in bulk."""
        self._posts: dict[MessageId, tuple[int, Post]] = {}
        self._replies: dict[MessageId, list[MessageId]] = {}
        self._forgotten = MessageSet()

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

    def stored(self) -> MessageSet:
        held = MessageSet()
        for message_id in sorted(self._posts):
            held.add(message_id)
        return held

    def forgotten(self) -> MessageSet:
        return self._forgotten

    def prune(self, retention: RetentionPolicy, now_ms: int) -> int:
        pruned = 0
        while self.count and retention.is_exceeded(self.count, self.size_bytes, self._oldest_ms, now_ms):
            message_id = self._rows[self._pruned_count]
            self._pruned_count += 1
            _, post = self._posts.pop(message_id)
            self.count -= 1
            self.size_bytes -= len(post.data) + STORED_POST_OVERHEAD_BYTES
            self._replies.pop(message_id, None)
            self._forgotten.add(message_id)
            pruned += 1
        if 2 * self._pruned_count > len(self._rows):
            del self._rows[: self._pruned_count]
            self._first_row += self._pruned_count
            self._pruned_count = 0
        return pruned

    @property
    def _oldest_ms(self) -> int:
        return self._posts[self._rows[self._pruned_count]][1].sent_at_ms


class MemoryStore:
    """Lives as long as the process."""

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
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do: the same store can be used again."""
