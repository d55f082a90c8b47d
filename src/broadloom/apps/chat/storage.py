"""The chat's files, with errors that say what to do.

    $XDG_DATA_HOME/broadloom/chat/<channel>/<name>.db      history and identity (SQLite)
    $XDG_DATA_HOME/broadloom/chat/<channel>/<name>.read    what was read (JSON)

The directory is private to the user.
"""

import hashlib
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from broadloom.apps.chat.read_state import ReadState
from broadloom.errors import BroadloomError, StoreError, StoreLockedError
from broadloom.groups import SqliteStore
from broadloom.groups.settings import NAME_BYTES_MAX

STORE_SUFFIX = ".db"
READ_SUFFIX = ".read"
FILE_NAME_MAX = 120
"""Characters; a longer name is cut and gets a hash."""


def chat_directory() -> Path:
    given = os.environ.get("XDG_DATA_HOME", "")
    # The standard says to ignore a relative path.
    base = Path(given) if given and Path(given).is_absolute() else Path.home() / ".local" / "share"
    return base / "broadloom" / "chat"


def store_path(channel: str, name: str) -> Path:
    return chat_directory() / _file_name(channel) / (_file_name(name) + STORE_SUFFIX)


def read_path(store: Path) -> Path:
    """The read-state file beside a store."""
    return store.with_name(store.name.removesuffix(STORE_SUFFIX) + READ_SUFFIX)


def create_parent_directories(store: Path) -> None:
    """New directories are private; existing ones are left as they are."""
    missing = [folder for folder in store.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)


def names_with_store(channel: str) -> list[str]:
    """Names with a store for this channel."""
    folder = chat_directory() / _file_name(channel)
    return sorted(unquote(found.name.removesuffix(STORE_SUFFIX)) for found in folder.glob(f"*{STORE_SUFFIX}"))


def _file_name(text: str) -> str:
    """Readable, and unique for each text."""
    name = quote(text, safe=" ")
    if len(name) > FILE_NAME_MAX:
        name = f"{name[:FILE_NAME_MAX]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return f"%2E{name[1:]}" if name.startswith(".") else name


class ChatStoreError(BroadloomError):
    """A file or argument is unusable; the text says what to do."""


class ChatFiles(NamedTuple):
    """The files of one chat."""

    store: SqliteStore | None
    """None to keep nothing."""
    read_state: ReadState

    def close(self) -> None:
        """For a channel that could not be joined; otherwise the groups close the store."""
        if self.store is not None:
            with suppress(sqlite3.ProgrammingError):  # already closed
                self.store.close()


def check_name(name: str) -> None:
    if not name.strip() or len(name.encode()) > NAME_BYTES_MAX or "\0" in name:
        raise ChatStoreError(f"a name must have 1 to {NAME_BYTES_MAX} bytes")


def open_chat_files(channel: str, name: str, path: Path | None, *, memory: bool) -> ChatFiles:
    """For joining: created if missing."""
    check_name(name)
    if memory:
        if path is not None:
            raise ChatStoreError("use --store or --ephemeral, not both")
        return ChatFiles(None, ReadState())
    path = path if path is not None else store_path(channel, name)
    try:
        create_parent_directories(path)
    except OSError as problem:
        raise ChatStoreError(
            f"cannot create {path.parent} ({problem.strerror}): choose another file with --store, "
            "or store nothing with --ephemeral"
        ) from None
    try:
        return ChatFiles(_open_store(path), ReadState(read_path(path)))
    except StoreLockedError:
        raise ChatStoreError(
            f"{name} is already in this chat in another program that uses {path}: choose another name, or --ephemeral"
        ) from None


def open_existing_store(channel: str, name: str, path: Path | None) -> SqliteStore:
    """For an export: it must exist and not be in use."""
    if path is None:
        path = _default_store_path(channel, name)
    if not path.is_file():
        raise ChatStoreError(f"no store at {path}: choose one with --store, or with --name and --channel")
    try:
        return _open_store(path)
    except StoreLockedError:
        raise ChatStoreError(f"{path} is in use: quit that chat before exporting") from None


def _default_store_path(channel: str, name: str) -> Path:
    if name:
        return store_path(channel, name)
    names = names_with_store(channel)
    if not names:
        raise ChatStoreError(
            f"no store for {channel} on this machine: choose a file with --store, or another --channel"
        )
    if len(names) > 1:
        raise ChatStoreError(f"several stores for {channel}: choose one with --name {', '.join(names)}")
    return store_path(channel, names[0])


def _open_store(path: Path) -> SqliteStore:
    try:
        return SqliteStore(path)
    except StoreLockedError:
        raise
    except StoreError as problem:
        raise ChatStoreError(str(problem)) from None
