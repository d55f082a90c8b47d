"""`SqliteStore`: the records of a keeper in one SQLite file.

A file belongs to one channel and is open in one program at a time. What was committed survives a crash of the machine.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broadloom.groups.store_errors import NotAStoreError, StoreCorruptError, store_error
from broadloom.mailboxes.record import RECORD, Record
from broadloom.private_files import open_new, warn_if_readable_by_others
from broadloom.wire.xdr import WireError

APPLICATION_ID = 0x42724D62
""""BrMb", in the header of the file (SQLite's application_id)."""
FORMAT = 1
LOCK_TIMEOUT_S = 0.2
_TABLES = """
create table channel (name text not null);
create table records (
    owner text not null, name text not null, record blob not null, credential blob not null,
    primary key (owner, name)) without rowid;
"""


class SqliteStore:
    def __init__(self, path: str | os.PathLike[str], channel: str) -> None:
        self.path = Path(path)
        with self._errors():
            try:
                os.close(open_new(self.path))
            except FileExistsError:
                warn_if_readable_by_others(self.path, "the values in")
            except OSError:
                pass  # SQLite says why
            self._connection = sqlite3.connect(
                self.path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            try:
                self._open(channel)
            except BaseException:
                self._connection.close()
                raise

    def _open(self, channel: str) -> None:
        run = self._connection.execute
        run("pragma locking_mode = exclusive")
        # Before anything is written: another program's database must stay as it is.
        is_new = not run("select count(*) from sqlite_schema").fetchone()[0]
        if not is_new and run("pragma application_id").fetchone()[0] != APPLICATION_ID:
            raise NotAStoreError(self.path, "it is not a store of mailboxes")
        if not is_new and run("pragma user_version").fetchone()[0] != FORMAT:
            raise NotAStoreError(self.path, "another version wrote it")
        run("pragma journal_mode = wal")
        run("pragma synchronous = full")  # a keeper acknowledges what it has committed
        run("begin immediate")
        if is_new:
            run(f"pragma application_id = {APPLICATION_ID}")
            run(f"pragma user_version = {FORMAT}")
            for statement in _TABLES.split(";"):
                run(statement)
            run("insert into channel values (?)", (channel,))
        owner = run("select name from channel").fetchone()
        if owner is None or owner[0] != channel:
            raise NotAStoreError(self.path, f"it belongs to the channel {owner[0] if owner else ''!r}")
        self.commit()

    def load(self) -> list[Record]:
        with self._errors():
            rows = self._connection.execute("select record, credential from records order by owner, name").fetchall()
        try:
            return [RECORD.unpack(record, 0)[0][0]._replace(credential=credential) for record, credential in rows]
        except (WireError, ValueError) as problem:
            raise StoreCorruptError(self.path, str(problem)) from None

    def put(self, record: Record) -> None:
        out: list[bytes] = []
        RECORD.pack((record, 0), out)
        with self._errors():
            self._connection.execute(
                "insert or replace into records values (?, ?, ?, ?)",
                (record.owner, record.name, b"".join(out), record.credential),
            )

    def remove(self, owner: str, name: str) -> None:
        with self._errors():
            self._connection.execute("delete from records where owner = ? and name = ?", (owner, name))

    def commit(self) -> None:
        with self._errors():
            if self._connection.in_transaction:
                self._connection.execute("commit")
            self._connection.execute("begin immediate")

    def close(self) -> None:
        with self._errors():
            try:
                if self._connection.in_transaction:
                    self._connection.execute("commit")
            finally:
                self._connection.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:
            raise  # a bug, or use after close
        except sqlite3.Error as problem:
            raise store_error(self.path, problem) from None
