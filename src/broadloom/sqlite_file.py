"""`SqliteFile`: a store on disk. It is private to its owner, open in one program at a time, and never another program's
database. Every failure is raised as a `StoreError` that names the file, the reason and the remedy.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broadloom.errors import (
    NotAStoreError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreVersionError,
)
from broadloom.private_files import open_new, warn_if_readable_by_others

LOCK_TIMEOUT_S = 0.2
_BROADLOOM = 0x4272
""""Br", the upper half of the application ids of all our files."""


@dataclass(frozen=True, slots=True)
class StoreSchema:
    """What tells the files of one kind of store from all others, and what they contain."""

    application_id: int
    """In the header of the file (SQLite's application_id): `Br` and two letters of its own."""
    format: int
    """Counts the changes to the tables (SQLite's user_version)."""
    tables: str
    upgrades: Mapping[int, str] = field(default_factory=dict)
    """Statements that turn an older format into the current one."""
    damage_remedy: str = ""
    """What to do about a damaged file, if it is not the same as for other stores."""
    is_durable: bool = True
    """A commit survives a crash of the machine, not only of the program."""


class SqliteFile:
    """The file `path`, which is created if it does not exist.

    `prepare(file, is_new)` runs in the transaction that creates or upgrades the tables.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: StoreSchema,
        prepare: "Callable[[SqliteFile, bool], None] | None" = None,
    ) -> None:
        self.path = Path(path)
        self._schema = schema
        _create_private(self.path)
        with self._errors():
            self._connection = sqlite3.connect(
                self.path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        try:
            self._open(prepare)
        except BaseException:
            self._connection.close()
            raise

    def _open(self, prepare: "Callable[[SqliteFile, bool], None] | None") -> None:
        schema = self._schema
        self.rows("pragma locking_mode = exclusive")
        # Before anything is written: another program's database must stay as it is.
        is_new = not self.rows("select count(*) from sqlite_schema")[0][0]
        version = self.rows("pragma user_version")[0][0]
        if not is_new:
            self._check_header(self.rows("pragma application_id")[0][0], version)
        self.rows("pragma journal_mode = wal")
        self.rows(f"pragma synchronous = {'full' if schema.is_durable else 'normal'}")
        with self.transaction():
            if is_new or version != schema.format:
                self.rows(f"pragma application_id = {schema.application_id}")
                self.rows(f"pragma user_version = {schema.format}")
                for statement in (schema.tables if is_new else schema.upgrades[version]).split(";"):
                    self.rows(statement)
            if prepare is not None:
                prepare(self, is_new)

    def _check_header(self, application_id: int, version: int) -> None:
        if application_id != self._schema.application_id:
            if application_id >> 16 == _BROADLOOM:
                raise NotAStoreError(self.path, "it is a Broadloom store of another kind")
            raise NotAStoreError(self.path, "it is the SQLite database of another program")
        if version != self._schema.format and version not in self._schema.upgrades:
            raise StoreVersionError(self.path, f"it has format {version} instead of {self._schema.format}")

    def rows(self, query: str, *values: Any) -> list[Any]:
        with self._errors():
            return self._connection.execute(query, values).fetchall()

    def each_row(self, query: str, *values: Any) -> Iterator[Any]:
        with self._errors():
            yield from self._connection.execute(query, values)

    def write_rows(self, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
        with self._errors():
            self._connection.executemany(query, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        self.rows("begin immediate")
        try:
            yield
            self.rows("commit")
        except BaseException:
            if self._connection.in_transaction:  # SQLite ends it itself after some errors
                self.rows("rollback")
            raise

    def commit(self) -> None:
        """For stores that collect changes: end this transaction, if there is one, and begin the next."""
        if self._connection.in_transaction:
            self.rows("commit")
        self.rows("begin immediate")

    def close(self) -> None:
        try:
            if self._connection.in_transaction:
                self.rows("commit")
        finally:
            with self._errors():
                self._connection.close()

    def damaged(self, detail: str) -> StoreCorruptError:
        return StoreCorruptError(self.path, detail, self._schema.damage_remedy)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:
            raise  # a bug, or use after close
        except sqlite3.Error as problem:
            raise self._store_error(problem) from None

    def _store_error(self, problem: sqlite3.Error) -> StoreError:
        path = self.path
        code = getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        match code & 0xFF:  # the primary code; the upper bits make it an extended one
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return StoreLockedError(path, "another program has it open")
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
                return StoreReadOnlyError(path, str(problem))
            case sqlite3.SQLITE_CANTOPEN if path.is_dir():
                return StoreError(path, "it is a directory")
            case sqlite3.SQLITE_CANTOPEN if not path.parent.is_dir():
                return StoreError(path, f"there is no directory {path.parent}")
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR if not _is_writable(path):
                return StoreReadOnlyError(path, str(problem))
            case sqlite3.SQLITE_FULL:
                return StoreFullError(path, "the disk is full")
            case sqlite3.SQLITE_IOERR if code in (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_TRUNCATE):
                return StoreFullError(path, str(problem))
            case sqlite3.SQLITE_CORRUPT:
                return self.damaged(str(problem))
            case sqlite3.SQLITE_NOTADB:
                return NotAStoreError(path, str(problem))
        return StoreError(path, str(problem))


def _create_private(path: Path) -> None:
    """SQLite would create a file that other users can read. Its journal gets the mode of the file."""
    try:
        os.close(open_new(path))
    except FileExistsError:
        warn_if_readable_by_others(path, "the store")
    except OSError:
        pass  # SQLite fails too, and its error names the reason


def _is_writable(path: Path) -> bool:
    """SQLite creates its write-ahead log beside the file, so it needs the folder too."""
    effective = os.access in os.supports_effective_ids
    return os.access(path.parent, os.W_OK, effective_ids=effective) and (
        not path.exists() or os.access(path, os.W_OK, effective_ids=effective)
    )
