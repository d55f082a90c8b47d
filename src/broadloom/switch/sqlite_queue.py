"""`SqliteQueue`: the queues of a switch in one SQLite file, so that what was queued survives a crash."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broadloom.groups.store_errors import NotAStoreError, store_error
from broadloom.private_files import open_new, warn_if_readable_by_others
from broadloom.switch.queue_store import StoredMessage

APPLICATION_ID = 0x42725377
""""BrSw", in the header of the file: tells our files from other SQLite databases."""
FORMAT = 1
LOCK_TIMEOUT_S = 0.2
_TABLE = """
create table queue (
    row integer primary key autoincrement, program text not null, copy blob not null, queued_at_ms integer not null,
    expires_at_ms integer not null, is_marked integer not null default 0)
"""


class SqliteQueue:
    """A `QueueStore` in the file `path`, which is created if it does not exist. One program at a time has it open."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        _create_private(self._path)
        with self._errors():
            self._connection = sqlite3.connect(
                self._path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        try:
            self._open()
        except BaseException:
            self._connection.close()
            raise

    def _open(self) -> None:
        self._rows("pragma locking_mode = exclusive")
        tables = self._rows("select count(*) from sqlite_schema")[0][0]
        if tables and self._rows("pragma application_id")[0][0] != APPLICATION_ID:
            raise NotAStoreError(self._path, "it is the SQLite database of another program")
        version = self._rows("pragma user_version")[0][0]
        if tables and version != FORMAT:
            raise NotAStoreError(self._path, f"another version wrote it, in format {version} instead of {FORMAT}")
        self._rows("pragma journal_mode = wal")
        # A message that was reported as queued must survive a crash of the machine.
        self._rows("pragma synchronous = full")
        self._rows("begin immediate")
        if not tables:
            self._rows(f"pragma application_id = {APPLICATION_ID}")
            self._rows(f"pragma user_version = {FORMAT}")
            self._rows(_TABLE)
        self._rows("commit")

    def add(self, program: str, copy: bytes, queued_at_ms: int, expires_at_ms: int) -> int:
        query = "insert into queue (program, copy, queued_at_ms, expires_at_ms) values (?, ?, ?, ?) returning row"
        return int(self._rows(query, program, copy, queued_at_ms, expires_at_ms)[0][0])

    def mark(self, row: int, is_marked: bool) -> None:
        self._rows("update queue set is_marked = ? where row = ?", is_marked, row)

    def remove(self, row: int) -> None:
        self._rows("delete from queue where row = ?", row)

    def load(self) -> list[StoredMessage]:
        query = "select row, program, copy, queued_at_ms, expires_at_ms, is_marked from queue order by row"
        return [StoredMessage(*values) for values in self._rows(query)]

    def close(self) -> None:
        with self._errors():
            self._connection.close()

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._errors():
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:
            raise  # a bug, or use after close
        except sqlite3.Error as problem:
            raise store_error(self._path, problem) from None


def _create_private(path: Path) -> None:
    """SQLite would create a file that other users can read."""
    try:
        os.close(open_new(path))
    except FileExistsError:
        warn_if_readable_by_others(path, "the store")
    except OSError:
        pass  # SQLite fails too, and its error names the reason
