"""History on disk, in one SQLite file: survives the process, so the same member returns and goes on with its numbering.

A file belongs to one member and is open in one program at a time. Ids are 64 bits without a sign, SQLite's numbers have
one: they are turned over at the border.
"""

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import WeftError
from weft.groups.fields import pack_rosters, unpack_rosters
from weft.groups.history import POST_COST_BYTES, KeptGroup
from weft.groups.intervals import Intervals
from weft.groups.names import GroupId, Member, MemberId, MessageId, Post

if TYPE_CHECKING:
    from weft.groups.history import History
    from weft.groups.settings import Keep

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


class StoreUnusable(WeftError):
    """The file is in use by another program, or is no store of this version."""


class SqliteStore:
    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._histories: dict[GroupId, SqliteHistory] = {}
        try:
            self._base = sqlite3.connect(self._path, timeout=0.2, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as problem:
            raise StoreUnusable(f"{self._path}: {problem}; is there such a folder, and may you write there?") from None
        try:
            self._base.execute("pragma locking_mode = exclusive")
            self._base.execute("pragma journal_mode = wal")
            self._base.execute("pragma synchronous = normal")
            self._base.execute("begin immediate")
            for each in _TABLES.split(";"):
                self._base.execute(each)
            self._check_format()
        except sqlite3.OperationalError as problem:
            self._base.close()
            raise StoreUnusable(f"{self._path}: {problem}; is another program using it?") from None
        except sqlite3.DatabaseError as problem:
            self._base.close()
            raise StoreUnusable(f"{self._path} is no history of groups: {problem}; name another file") from None
        except StoreUnusable:
            self._base.close()
            raise

    def _check_format(self) -> None:
        found = self._base.execute("select format from about").fetchone()
        if found is None:
            self._base.execute("insert into about values (?, null, null)", (FORMAT,))
        elif found[0] == 1:
            self._base.execute(_TO_FORMAT_2)
            self._base.execute("update about set format = ?", (FORMAT,))
        elif found[0] != FORMAT:
            raise StoreUnusable(f"{self._path} was written by another version of Weft (format {found[0]})")

    def member(self) -> Member | None:
        member, name = self._base.execute("select member, name from about").fetchone()
        return Member(_unsigned(member), name) if member is not None else None

    def set_member(self, member: Member) -> None:
        self._base.execute("update about set member = ?, name = ?", (_signed(member.id), member.name))
        self.commit()

    def groups(self) -> list[KeptGroup]:
        rows = self._base.execute("select roster, joined from groups").fetchall()
        return [KeptGroup(unpack_rosters(roster)[0], bool(joined)) for roster, joined in rows]

    def save_group(self, kept: KeptGroup) -> None:
        row = (_signed(kept.roster.group), pack_rosters([kept.roster]), kept.joined)
        self._base.execute("insert or replace into groups values (?, ?, ?)", row)

    def history(self, group: GroupId) -> "History":
        found = self._histories.get(group)
        if found is None:
            found = self._histories[group] = SqliteHistory(self._base, group)
        return found

    def commit(self) -> None:
        if self._base.in_transaction:
            self._base.execute("commit")
        self._base.execute("begin immediate")

    def close(self) -> None:
        if self._base.in_transaction:
            self._base.execute("commit")
        self._base.close()


class SqliteHistory:
    def __init__(self, base: sqlite3.Connection, group: GroupId) -> None:
        self._base = base
        self._group = _signed(group)
        self.names: dict[MemberId, str] = {
            _unsigned(author): name
            for author, name in self._rows("select author, name from names where grp = ?", self._group)
        }
        told = self._rows(
            "select count(*), coalesce(sum(coalesce(length(data), 0)), 0) from posts where grp = ?", self._group
        )
        self.count = int(told[0][0])
        self.size_bytes = int(told[0][1]) + POST_COST_BYTES * self.count
        self._forgotten: dict[MemberId, Intervals] = {}
        for author, first, last in self._rows("select author, first, last from forgotten where grp = ?", self._group):
            self._forgotten.setdefault(_unsigned(author), Intervals()).add_span(first, last)

    def _rows(self, query: str, *values: Any) -> list[Any]:
        return self._base.execute(query, values).fetchall()

    def add(self, post: Post, name: str) -> None:
        if self.names.get(post.author) != name:
            self.names[post.author] = name
            self._rows("insert or replace into names values (?, ?, ?)", self._group, _signed(post.author), name)
        above = post.parent
        self._rows(
            f"insert into posts (grp, {_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?)",
            self._group,
            _signed(post.author),
            post.sequence,
            _signed(above.author) if above is not None else None,
            above.sequence if above is not None else None,
            min(post.sent_ms, (1 << 63) - 1),
            None if post.hollow else post.data,
            post.proven,
        )
        self.count += 1
        self.size_bytes += len(post.data) + POST_COST_BYTES

    def get(self, named: MessageId) -> Post | None:
        query = f"select {_COLUMNS} from posts where grp = ? and author = ? and sequence = ?"
        found = self._rows(query, self._group, _signed(named.author), named.sequence)
        return _post(*found[0]) if found else None

    def answers(self, named: MessageId) -> list[MessageId]:
        query = "select author, sequence from posts where grp = ? and above = ? and above_sequence = ? order by row"
        found = self._rows(query, self._group, _signed(named.author), named.sequence)
        return [MessageId(_unsigned(author), sequence) for author, sequence in found]

    def scan(self, after_row: int, rows_max: int) -> list[tuple[int, Post]]:
        query = f"select row, {_COLUMNS} from posts where grp = ? and row > ? order by row limit ?"
        return [(row, _post(*rest)) for row, *rest in self._rows(query, self._group, after_row, rows_max)]

    def held(self) -> dict[MemberId, Intervals]:
        held: dict[MemberId, Intervals] = {}
        query = "select author, sequence from posts where grp = ? order by author, sequence"
        for author, sequence in self._base.execute(query, (self._group,)):
            held.setdefault(_unsigned(author), Intervals()).add(sequence)
        return held

    def forgotten(self) -> dict[MemberId, Intervals]:
        return self._forgotten

    def prune(self, keep: "Keep", now_ms: int) -> int:
        """The oldest rows first. What goes by age is found from the front too: a row in order keeps those behind it."""
        pruned = 0
        while self.count:
            doomed: list[tuple[int, int, int]] = []
            count, size = self.count, self.size_bytes
            query = (
                "select row, author, sequence, sent_ms, coalesce(length(data), 0) from posts "
                "where grp = ? order by row limit 1000"
            )
            for row, author, sequence, sent_ms, length in self._rows(query, self._group):
                if not (
                    (keep.messages and count > keep.messages)
                    or (keep.total_bytes and size > keep.total_bytes)
                    or (keep.age_s and sent_ms < now_ms - 1000 * keep.age_s)
                ):
                    break
                doomed.append((row, author, sequence))
                count, size = count - 1, size - length - POST_COST_BYTES
            if not doomed:
                break
            self._base.executemany("delete from posts where row = ?", [(row,) for row, _, _ in doomed])
            for _, author, sequence in doomed:
                self._forgotten.setdefault(_unsigned(author), Intervals()).add(sequence)
            self.count, self.size_bytes = count, size
            pruned += len(doomed)
        if pruned:
            self._save_forgotten()
        return pruned

    def _save_forgotten(self) -> None:
        self._rows("delete from forgotten where grp = ?", self._group)
        rows = [
            (self._group, _signed(author), first, last)
            for author, spans in self._forgotten.items()
            for first, last in spans
        ]
        self._base.executemany("insert into forgotten values (?, ?, ?, ?)", rows)


def _post(
    author: int,
    sequence: int,
    above: int | None,
    above_sequence: int | None,
    sent_ms: int,
    data: bytes | None,
    proven: str,
) -> Post:
    parent = None
    if above is not None and above_sequence is not None:
        parent = MessageId(_unsigned(above), above_sequence)
    return Post(_unsigned(author), sequence, parent, sent_ms, data if data is not None else b"", data is None, proven)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _unsigned(number: int) -> int:
    return number + (1 << 64) if number < 0 else number
