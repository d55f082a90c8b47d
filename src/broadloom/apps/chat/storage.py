"""Opening the files of the chat, with errors that say what to do."""

import hashlib
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from broadloom.apps.chat.read_state import ReadState
from broadloom.errors import BroadloomError
from broadloom.groups import SqliteStore, StoreError
from broadloom.groups.settings import NAME_BYTES_MAX

# Where the chat keeps its files: one store for each name and channel, in the user's data folder.
#
#     $XDG_DATA_HOME/broadloom/chat/<channel>/<name>.db      history and identity (SQLite)
#     $XDG_DATA_HOME/broadloom/chat/<channel>/<name>.read    what was read (JSON)
#
# The folder is for its user alone.


STORE_SUFFIX = ".db"
READ_SUFFIX = ".read"
FILE_NAME_MAX = 120
"""Signs; a longer name is cut, and told apart by a hash."""


def chat_directory() -> Path:
    given = os.environ.get("XDG_DATA_HOME", "")
    # A relative path there is to be ignored, says the standard.
    base = Path(given) if given and Path(given).is_absolute() else Path.home() / ".local" / "share"
    return base / "broadloom" / "chat"


def store_path(channel: str, name: str) -> Path:
    return chat_directory() / _file_name(channel) / (_file_name(name) + STORE_SUFFIX)


def read_path(store: Path) -> Path:
    """The file beside a store that says what was read."""
    return store.with_name(store.name.removesuffix(STORE_SUFFIX) + READ_SUFFIX)


def create_parent_directories(store: Path) -> None:
    """Folders that are made here are for this user alone; those that exist are left as they are."""
    missing = [folder for folder in store.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)


def names_with_store(channel: str) -> list[str]:
    """Who has a store for this channel here."""
    folder = chat_directory() / _file_name(channel)
    return sorted(unquote(found.name.removesuffix(STORE_SUFFIX)) for found in folder.glob(f"*{STORE_SUFFIX}"))


def _file_name(text: str) -> str:
    """Readable, and another one for each text."""
    name = quote(text, safe=" ")
    if len(name) > FILE_NAME_MAX:
        name = f"{name[:FILE_NAME_MAX]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return f"%2E{name[1:]}" if name.startswith(".") else name


class ChatStoreError(BroadloomError):
    """Words or files do not fit; the text says what to do."""


class ChatFiles(NamedTuple):
    """What a chat keeps."""

    store: SqliteStore | None
    """None to keep nothing."""
    read_state: ReadState

    def close(self) -> None:
        """If the channel could not be joined; else the groups close the store."""
        if self.store is not None:
            with suppress(sqlite3.ProgrammingError):  # closed already
                self.store.close()


def check_name(name: str) -> None:
    if not name.strip() or len(name.encode()) > NAME_BYTES_MAX or "\0" in name:
        raise ChatStoreError(f"a name has 1 to {NAME_BYTES_MAX} bytes: choose another one")


def open_chat_files(channel: str, name: str, path: Path | None, *, memory: bool) -> ChatFiles:
    """For taking part: made if it is not there."""
    check_name(name)
    if memory:
        if path is not None:
            raise ChatStoreError("give --store or --ephemeral, not both")
        return ChatFiles(None, ReadState())
    path = path if path is not None else store_path(channel, name)
    try:
        create_parent_directories(path)
    except OSError as problem:
        raise ChatStoreError(
            f"cannot make the folder {path.parent} ({problem.strerror}): name another file with --store, or keep "
            "nothing with --ephemeral"
        ) from None
    try:
        return ChatFiles(_open_store(path), ReadState(read_path(path)))
    except _StoreLockedError:
        raise ChatStoreError(
            f"{name} is in this chat already, in another program that uses {path}: choose another name, or --ephemeral"
        ) from None


def open_existing_store(channel: str, name: str, path: Path | None) -> SqliteStore:
    """For an export: it must be there, and nobody may use it."""
    if path is None:
        path = _default_store_path(channel, name)
    if not path.is_file():
        raise ChatStoreError(f"there is no store {path}: name another one with --store, or --name and --channel")
    try:
        return _open_store(path)
    except _StoreLockedError:
        raise ChatStoreError(f"{path} is in use: quit that chat first, then export") from None


def _default_store_path(channel: str, name: str) -> Path:
    if name:
        return store_path(channel, name)
    names = names_with_store(channel)
    if not names:
        raise ChatStoreError(
            f"nobody has a store for {channel} on this machine: name a file with --store, or another --channel"
        )
    if len(names) > 1:
        raise ChatStoreError(f"several have a store for {channel} here: choose one of --name {', '.join(names)}")
    return store_path(channel, names[0])


class _StoreLockedError(Exception):
    pass


def _open_store(path: Path) -> SqliteStore:
    try:
        return SqliteStore(path)
    except StoreError as problem:
        if "locked" in str(problem):
            raise _StoreLockedError from None
        raise ChatStoreError(str(problem)) from None
    except (sqlite3.Error, OSError) as problem:
        raise ChatStoreError(f"cannot open {path}: {problem}; name another file with --store") from None
