"""What can go wrong with a store on disk. Every message names the file, the reason and the remedy."""

import os
import sqlite3
from pathlib import Path
from typing import ClassVar

from broadloom.errors import BroadloomError


class StoreError(BroadloomError):
    """The store cannot be opened, read or written. Subclasses tell the common reasons apart."""

    summary: ClassVar = "cannot be used"
    remedy: ClassVar = "Use another file."

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(f"{path} {self.summary}: {detail}. {self.remedy}")
        self.path = path


class StoreLockedError(StoreError):
    summary = "is locked"
    remedy = "Close that program, or use another file."


class StoreReadOnlyError(StoreError):
    summary = "is read-only"
    remedy = "Make the file and its directory writable, or use another file."


class StoreFullError(StoreError):
    summary = "cannot grow"
    remedy = "Check the free disk space and the limit on file sizes, then start again."


class StoreCorruptError(StoreError):
    summary = "is damaged"
    remedy = "Restore a backup, or use a new file. Members of a group send its history again."


class NotAStoreError(StoreError):
    summary = "is not a Broadloom store of this version"


def store_error(path: Path, problem: sqlite3.Error) -> StoreError:
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
            return StoreCorruptError(path, str(problem))
        case sqlite3.SQLITE_NOTADB:
            return NotAStoreError(path, str(problem))
    return StoreError(path, str(problem))


def _is_writable(path: Path) -> bool:
    """SQLite creates its write-ahead log beside the file, so it needs the folder too."""
    effective = os.access in os.supports_effective_ids
    return os.access(path.parent, os.W_OK, effective_ids=effective) and (
        not path.exists() or os.access(path, os.W_OK, effective_ids=effective)
    )
