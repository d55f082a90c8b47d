"""`SqliteStore`: identity, groups and history in one SQLite file, so that a member survives a restart.

A file belongs to one member and is open in one program at a time. Ids are unsigned 64-bit integers and SQLite's are
signed: they are converted here.
"""

import os
from typing import TYPE_CHECKING

from broadloom.groups.message_fields import pack_group_records, unpack_group_records
from broadloom.groups.message_set import MessageSet
from broadloom.groups.model import GroupId, Member, MemberId, MessageId, Post
from broadloom.groups.store import STORED_POST_OVERHEAD_BYTES, StoredGroup
from broadloom.sqlite_file import SqliteFile, StoreSchema
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from broadloom.groups.settings import RetentionPolicy
    from broadloom.groups.store import History

PRUNE_ROWS = 1000
_TABLES = """
create table member (id integer not null, name text not null);
create table groups (id integer primary key, record blob not null, is_joined integer not null);
create table posts (
    row integer primary key autoincrement, group_id integer not null, author integer not null,
    sequence integer not null, parent_author integer, parent_sequence integer, sent_at_ms integer not null,
    data blob, verified_name text not null, proof blob not null default x'', credential integer,
    unique (group_id, author, sequence));
create table credentials (id integer primary key, der blob not null unique);
create index posts_by_group on posts (group_id);
create index posts_by_parent on posts (group_id, parent_author, parent_sequence) where parent_author is not null;
create table forgotten (
    group_id integer not null, author integer not null, first integer not null, last integer not null);
create index forgotten_by_group on forgotten (group_id);
create table names (
    group_id integer not null, author integer not null, name text not null, primary key (group_id, author)
) without rowid;
"""
_FROM_FORMAT_1 = """
alter table posts add column proof blob not null default x'';
alter table posts add column credential integer;
create table credentials (id integer primary key, der blob not null unique);
"""
_SCHEMA = StoreSchema(
    application_id=0x42726C6D,  # "Brlm"
    format=2,
    tables=_TABLES,
    upgrades={1: _FROM_FORMAT_1},
    damage_remedy="Restore a backup, or use a new file. Members of a group send its history again.",
    is_durable=False,
)
_COLUMNS = "author, sequence, parent_author, parent_sequence, sent_at_ms, data, verified_name, proof, credential"


class _Credentials:
    """The certificates that prove posts, each stored once."""

    def __init__(self, db: SqliteFile) -> None:
        self._db = db
        self._by_id: dict[int, bytes] = {}
        self._ids: dict[bytes, int] = {}

    def get(self, number: int) -> bytes:
        if number not in self._by_id:
            found = self._db.rows("select der from credentials where id = ?", number)
            self._remember(number, found[0][0] if found else b"")
        return self._by_id[number]

    def id_of(self, der: bytes) -> int:
        if der not in self._ids:
            self._db.rows("insert or ignore into credentials (der) values (?)", der)
            self._remember(self._db.rows("select id from credentials where der = ?", der)[0][0], der)
        return self._ids[der]

    def _remember(self, number: int, der: bytes) -> None:
        self._by_id[number], self._ids[der] = der, number


class SqliteStore:
    """A `Store` in the file `path`, which is created if it does not exist."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._db = SqliteFile(path, _SCHEMA)
        self._db.commit()
        self._credentials = _Credentials(self._db)
        self._histories: dict[GroupId, SqliteHistory] = {}

    def member(self) -> Member | None:
        found = self._db.rows("select id, name from member")
        return Member(_member_id(found[0][0]), found[0][1]) if found else None

    def set_member(self, member: Member) -> None:
        self._db.rows("delete from member")
        self._db.rows("insert into member values (?, ?)", _signed(member.id), member.name)
        self.commit()

    def groups(self) -> list[StoredGroup]:
        try:
            return [
                StoredGroup(unpack_group_records(record)[0], bool(is_joined))
                for record, is_joined in self._db.rows("select record, is_joined from groups")
            ]
        except WireError as problem:
            raise self._db.damaged(str(problem)) from None

    def save_group(self, stored: StoredGroup) -> None:
        record = pack_group_records([stored.record])
        self._db.rows(
            "insert or replace into groups values (?, ?, ?)", _signed(stored.record.group), record, stored.is_joined
        )

    @property
    def has_verified_names(self) -> bool:
        """Whether the author of any post is verified: the channel has tickets."""
        return bool(self._db.rows("select 1 from posts where verified_name <> '' limit 1"))

    def history(self, group: GroupId) -> "History":
        if group not in self._histories:
            self._histories[group] = SqliteHistory(self._db, self._credentials, group)
        return self._histories[group]

    def commit(self) -> None:
        self._db.commit()

    def close(self) -> None:
        self._db.close()


class SqliteHistory:
    def __init__(self, db: SqliteFile, credentials: _Credentials, group: GroupId) -> None:
        self._db = db
        self._credentials = credentials
        self._group = _signed(group)
        self.names: dict[MemberId, str] = {
            _member_id(author): name
            for author, name in db.rows("select author, name from names where group_id = ?", self._group)
        }
        totals = "select count(*), coalesce(sum(coalesce(length(data), 0)), 0) from posts where group_id = ?"
        self.count, data_bytes = db.rows(totals, self._group)[0]
        self.size_bytes = data_bytes + STORED_POST_OVERHEAD_BYTES * self.count
        rows = db.rows("select author, first, last from forgotten where group_id = ?", self._group)
        self._forgotten = MessageSet((_member_id(author), [(first, last)]) for author, first, last in rows)

    def add(self, post: Post, name: str) -> None:
        if self.names.get(post.author) != name:
            self.names[post.author] = name
            self._db.rows("insert or replace into names values (?, ?, ?)", self._group, _signed(post.author), name)
        parent_id = post.parent_id
        self._db.rows(
            f"insert into posts (group_id, {_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            self._group,
            _signed(post.author),
            post.sequence,
            _signed(parent_id.author) if parent_id is not None else None,
            parent_id.sequence if parent_id is not None else None,
            min(post.sent_at_ms, (1 << 63) - 1),
            None if post.is_stripped else post.data,
            post.verified_name,
            post.proof,
            self._credentials.id_of(post.credential) if post.proof else None,
        )
        self.count += 1
        self.size_bytes += len(post.data) + STORED_POST_OVERHEAD_BYTES

    def get(self, message_id: MessageId) -> Post | None:
        query = f"select {_COLUMNS} from posts where group_id = ? and author = ? and sequence = ?"
        found = self._db.rows(query, self._group, _signed(message_id.author), message_id.sequence)
        return self._post(*found[0]) if found else None

    def _post(
        self,
        author: int,
        sequence: int,
        parent_author: int | None,
        parent_sequence: int | None,
        sent_at_ms: int,
        data: bytes | None,
        verified_name: str,
        proof: bytes,
        credential_id: int | None,
    ) -> Post:
        parent_id = None
        if parent_author is not None and parent_sequence is not None:
            parent_id = MessageId(_member_id(parent_author), parent_sequence)
        credential = self._credentials.get(credential_id) if credential_id is not None else b""
        return Post(
            _member_id(author),
            sequence,
            parent_id,
            sent_at_ms,
            data or b"",
            data is None,
            verified_name,
            proof,
            credential,
        )

    def replies(self, message_id: MessageId) -> list[MessageId]:
        query = (
            "select author, sequence from posts "
            "where group_id = ? and parent_author = ? and parent_sequence = ? order by row"
        )
        found = self._db.rows(query, self._group, _signed(message_id.author), message_id.sequence)
        return [MessageId(_member_id(author), sequence) for author, sequence in found]

    def scan(self, after_row: int, rows_max: int) -> list[tuple[int, Post]]:
        query = f"select row, {_COLUMNS} from posts where group_id = ? and row > ? order by row limit ?"
        return [(row, self._post(*rest)) for row, *rest in self._db.rows(query, self._group, after_row, rows_max)]

    def stored(self) -> MessageSet:
        held = MessageSet()
        query = "select author, sequence from posts where group_id = ? order by author, sequence"
        for author, sequence in self._db.each_row(query, self._group):
            held.add(MessageId(_member_id(author), sequence))
        return held

    def forgotten(self) -> MessageSet:
        return self._forgotten

    def prune(self, retention: "RetentionPolicy", now_ms: int) -> int:
        """Removes the oldest rows first. A row that may stay keeps all rows behind it, even those that are too old."""
        query = (
            "select row, author, sequence, sent_at_ms, coalesce(length(data), 0) from posts "
            "where group_id = ? order by row limit ?"
        )
        pruned_count = 0
        while self.count:
            expired: list[tuple[int]] = []
            for row, author, sequence, sent_at_ms, length in self._db.rows(query, self._group, PRUNE_ROWS):
                if not retention.is_exceeded(self.count, self.size_bytes, sent_at_ms, now_ms):
                    break
                expired.append((row,))
                self.count -= 1
                self.size_bytes -= length + STORED_POST_OVERHEAD_BYTES
                self._forgotten.add(MessageId(_member_id(author), sequence))
            if not expired:
                break
            self._db.write_rows("delete from posts where row = ?", expired)
            pruned_count += len(expired)
        if pruned_count:
            self._save_forgotten()
        return pruned_count

    def _save_forgotten(self) -> None:
        self._db.rows("delete from forgotten where group_id = ?", self._group)
        rows = [
            (self._group, _signed(author), *interval)
            for author, intervals in self._forgotten.items()
            for interval in intervals
        ]
        self._db.write_rows("insert into forgotten values (?, ?, ?, ?)", rows)


def _signed(number: int) -> int:
    return number - ((number >> 63) << 64)


def _member_id(number: int) -> MemberId:
    return MemberId(number % (1 << 64))
