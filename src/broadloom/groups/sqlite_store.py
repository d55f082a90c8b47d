"""History on disk, in one SQLite file: survives the process, so the same member returns and goes on with its numbering.

A file belongs to one member and is open in one program at a time. Ids are 64 bits without a sign, SQLite's numbers have
one: they are turned over at the border.
"""

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError
from broadloom.groups.intervals import IntervalSet
from broadloom.groups.message_fields import pack_group_records, unpack_group_records
from broadloom.groups.model import GroupId, Member, MemberId, MessageId, Post
from broadloom.groups.store import STORED_POST_OVERHEAD_BYTES, StoredGroup

if TYPE_CHECKING:
    from broadloom.groups.settings import RetentionPolicy
    from broadloom.groups.store import History

FORMAT = 2
_TABLES = """
create table if not exists about (format integer not null, member integer, name text);
create table if not exists groups (id integer primary key, roster blob not null, joined integer not null);
create table if not exists posts (
    row integer primary key autoincrement, grp integer not null, author integer not null, sequence integer not null,
    above integer, above_sequence integer, sent_ms integer not null, data blob, proven text not null default '',
    unique (grp, author, sequence));
create index if not exists rows_of on posts (grp);
create index if not exists answers on posts (grp, above, above_sequence) where above is not null;
create table if not exists forgotten (
    grp integer not null, author integer not null, first integer not null, last integer not null);
create index if not exists forgotten_of on forgotten (grp);
create table if not exists names (
    grp integer not null, author integer not null, name text not null, primary key (grp, author)) without rowid;
"""
_COLUMNS = "author, sequence, above, above_sequence, sent_ms, data, proven"
_TO_FORMAT_2 = "alter table posts add column proven text not null default ''"


class StoreError(BroadloomError):
    """The file is in use by another program, or is no store of this version."""


class SqliteStore:
    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._histories: dict[GroupId, SqliteHistory] = {}
        try:
            self._db = sqlite3.connect(self._path, timeout=0.2, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as problem:
            raise StoreError(f"{self._path}: {problem}; is there such a folder, and may you write there?") from None
        try:
            self._db.execute("pragma locking_mode = exclusive")
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
            self._db.execute("begin immediate")
            for each in _TABLES.split(";"):
                self._db.execute(each)
            self._check_format()
        except sqlite3.OperationalError as problem:
            self._db.close()
            raise StoreError(f"{self._path}: {problem}; is another program using it?") from None
        except sqlite3.DatabaseError as problem:
            self._db.close()
            raise StoreError(f"{self._path} is no history of groups: {problem}; name another file") from None
        except StoreError:
            self._db.close()
            raise

    def _check_format(self) -> None:
        found = self._db.execute("select format from about").fetchone()
        if found is None:
            self._db.execute("insert into about values (?, null, null)", (FORMAT,))
        elif found[0] == 1:
            self._db.execute(_TO_FORMAT_2)
            self._db.execute("update about set format = ?", (FORMAT,))
        elif found[0] != FORMAT:
            raise StoreError(f"{self._path} was written by another version of Broadloom (format {found[0]})")

    def member(self) -> Member | None:
        member, name = self._db.execute("select member, name from about").fetchone()
        return Member(_unsigned(member), name) if member is not None else None

    def set_member(self, member: Member) -> None:
        self._db.execute("update about set member = ?, name = ?", (_signed(member.id), member.name))
        self.commit()

    def groups(self) -> list[StoredGroup]:
        rows = self._db.execute("select roster, joined from groups").fetchall()
        return [StoredGroup(unpack_group_records(record)[0], bool(joined)) for record, joined in rows]

    def save_group(self, stored: StoredGroup) -> None:
        row = (_signed(stored.record.group), pack_group_records([stored.record]), stored.is_joined)
        self._db.execute("insert or replace into groups values (?, ?, ?)", row)

    def history(self, group: GroupId) -> "History":
        found = self._histories.get(group)
        if found is None:
            found = self._histories[group] = SqliteHistory(self._db, group)
        return found

    def commit(self) -> None:
        if self._db.in_transaction:
            self._db.execute("commit")
        self._db.execute("begin immediate")

    def close(self) -> None:
        if self._db.in_transaction:
            self._db.execute("commit")
        self._db.close()


class SqliteHistory:
    def __init__(self, db: sqlite3.Connection, group: GroupId) -> None:
        self._db = db
        self._group = _signed(group)
        self.names: dict[MemberId, str] = {
            _unsigned(author): name
            for author, name in self._rows("select author, name from names where grp = ?", self._group)
        }
        totals = self._rows(
            "select count(*), coalesce(sum(coalesce(length(data), 0)), 0) from posts where grp = ?", self._group
        )
        self.count = int(totals[0][0])
        self.size_bytes = int(totals[0][1]) + STORED_POST_OVERHEAD_BYTES * self.count
        self._forgotten: dict[MemberId, IntervalSet] = {}
        for author, first, last in self._rows("select author, first, last from forgotten where grp = ?", self._group):
            self._forgotten.setdefault(_unsigned(author), IntervalSet()).add_interval(first, last)

    def _rows(self, query: str, *values: Any) -> list[Any]:
        return self._db.execute(query, values).fetchall()

    def add(self, post: Post, name: str) -> None:
        if self.names.get(post.author) != name:
            self.names[post.author] = name
            self._rows("insert or replace into names values (?, ?, ?)", self._group, _signed(post.author), name)
        parent_id = post.parent_id
        self._rows(
            f"insert into posts (grp, {_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?)",
            self._group,
            _signed(post.author),
            post.sequence,
            _signed(parent_id.author) if parent_id is not None else None,
            parent_id.sequence if parent_id is not None else None,
            min(post.sent_at_ms, (1 << 63) - 1),
            None if post.is_stripped else post.data,
            post.verified_name,
        )
        self.count += 1
        self.size_bytes += len(post.data) + STORED_POST_OVERHEAD_BYTES

    def get(self, message_id: MessageId) -> Post | None:
        query = f"select {_COLUMNS} from posts where grp = ? and author = ? and sequence = ?"
        found = self._rows(query, self._group, _signed(message_id.author), message_id.sequence)
        return _post(*found[0]) if found else None

    def replies(self, message_id: MessageId) -> list[MessageId]:
        query = "select author, sequence from posts where grp = ? and above = ? and above_sequence = ? order by row"
        found = self._rows(query, self._group, _signed(message_id.author), message_id.sequence)
        return [MessageId(_unsigned(author), sequence) for author, sequence in found]

    def scan(self, after_row: int, rows_max: int) -> list[tuple[int, Post]]:
        query = f"select row, {_COLUMNS} from posts where grp = ? and row > ? order by row limit ?"
        return [(row, _post(*rest)) for row, *rest in self._rows(query, self._group, after_row, rows_max)]

    def held(self) -> dict[MemberId, IntervalSet]:
        held: dict[MemberId, IntervalSet] = {}
        query = "select author, sequence from posts where grp = ? order by author, sequence"
        for author, sequence in self._db.execute(query, (self._group,)):
            held.setdefault(_unsigned(author), IntervalSet()).add(sequence)
        return held

    def forgotten(self) -> dict[MemberId, IntervalSet]:
        return self._forgotten

    def prune(self, retention: "RetentionPolicy", now_ms: int) -> int:
        """The oldest rows first. What goes by age is found from the front too: a row in order keeps those behind it."""
        pruned = 0
        while self.count:
            to_delete: list[tuple[int, int, int]] = []
            count, size = self.count, self.size_bytes
            query = (
                "select row, author, sequence, sent_ms, coalesce(length(data), 0) from posts "
                "where grp = ? order by row limit 1000"
            )
            for row, author, sequence, sent_at_ms, length in self._rows(query, self._group):
                if not (
                    (retention.messages_max and count > retention.messages_max)
                    or (retention.bytes_max and size > retention.bytes_max)
                    or (retention.age_max_s and sent_at_ms < now_ms - 1000 * retention.age_max_s)
                ):
                    break
                to_delete.append((row, author, sequence))
                count, size = count - 1, size - length - STORED_POST_OVERHEAD_BYTES
            if not to_delete:
                break
            self._db.executemany("delete from posts where row = ?", [(row,) for row, _, _ in to_delete])
            for _, author, sequence in to_delete:
                self._forgotten.setdefault(_unsigned(author), IntervalSet()).add(sequence)
            self.count, self.size_bytes = count, size
            pruned += len(to_delete)
        if pruned:
            self._save_forgotten()
        return pruned

    def _save_forgotten(self) -> None:
        self._rows("delete from forgotten where grp = ?", self._group)
        rows = [
            (self._group, _signed(author), first, last)
            for author, intervals in self._forgotten.items()
            for first, last in intervals
        ]
        self._db.executemany("insert into forgotten values (?, ?, ?, ?)", rows)


def _post(
    author: int,
    sequence: int,
    parent_id: int | None,
    above_sequence: int | None,
    sent_at_ms: int,
    data: bytes | None,
    verified_name: str,
) -> Post:
    parent = None
    if parent_id is not None and above_sequence is not None:
        parent = MessageId(_unsigned(parent_id), above_sequence)
    return Post(
        _unsigned(author), sequence, parent, sent_at_ms, data if data is not None else b"", data is None, verified_name
    )


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _unsigned(number: int) -> int:
    return number + (1 << 64) if number < 0 else number
