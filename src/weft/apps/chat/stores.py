"""Opening the files of the chat, with errors that say what to do."""

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from weft.apps.chat.places import make_folder_of, names_with_store, read_path, store_path
from weft.apps.chat.reading import Reading
from weft.errors import WeftError
from weft.groups import SqliteStore, StoreUnusable
from weft.groups.limits import NAME_BYTES_MAX


class NotUsable(WeftError):
    """Words or files do not fit; the text says what to do."""


class Kept(NamedTuple):
    """What a chat keeps."""

    store: SqliteStore | None
    """None to keep nothing."""
    reading: Reading

    def close(self) -> None:
        """If the channel could not be joined; else the groups close the store."""
        if self.store is not None:
            with suppress(sqlite3.ProgrammingError):  # closed already
                self.store.close()


def check_name(name: str) -> None:
    if not name.strip() or len(name.encode()) > NAME_BYTES_MAX or "\0" in name:
        raise NotUsable(f"a name has 1 to {NAME_BYTES_MAX} bytes: choose another one")


def open_kept(channel: str, name: str, path: Path | None, *, memory: bool) -> Kept:
    """For taking part: made if it is not there."""
    check_name(name)
    if memory:
        if path is not None:
            raise NotUsable("give --store or --memory, not both")
        return Kept(None, Reading())
    path = path if path is not None else store_path(channel, name)
    try:
        make_folder_of(path)
    except OSError as problem:
        raise NotUsable(
            f"cannot make the folder {path.parent} ({problem.strerror}): name another file with --store, or keep "
            "nothing with --memory"
        ) from None
    try:
        return Kept(_open(path), Reading(read_path(path)))
    except _InUse:
        raise NotUsable(
            f"{name} is in this chat already, in another program that uses {path}: choose another name, or --memory"
        ) from None


def open_to_read(channel: str, name: str, path: Path | None) -> SqliteStore:
    """For an export: it must be there, and nobody may use it."""
    if path is None:
        path = _the_only(channel, name)
    if not path.is_file():
        raise NotUsable(f"there is no store {path}: name another one with --store, or --name and --channel")
    try:
        return _open(path)
    except _InUse:
        raise NotUsable(f"{path} is in use: quit that chat first, then export") from None


def _the_only(channel: str, name: str) -> Path:
    if name:
        return store_path(channel, name)
    names = names_with_store(channel)
    if not names:
        raise NotUsable(
            f"nobody has a store for {channel} on this machine: name a file with --store, or another --channel"
        )
    if len(names) > 1:
        raise NotUsable(f"several have a store for {channel} here: choose one of --name {', '.join(names)}")
    return store_path(channel, names[0])


class _InUse(Exception):
    pass


def _open(path: Path) -> SqliteStore:
    try:
        return SqliteStore(path)
    except StoreUnusable as problem:
        if "locked" in str(problem):
            raise _InUse from None
        raise NotUsable(str(problem)) from None
    except (sqlite3.Error, OSError) as problem:
        raise NotUsable(f"cannot open {path}: {problem}; name another file with --store") from None
