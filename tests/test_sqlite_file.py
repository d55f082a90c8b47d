"""All stores open their files in one way: private, open in one program, no other file touched, errors with a remedy."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest

from broadloom import NotAStoreError, StoreError, StoreLockedError, StoreVersionError
from broadloom.groups import SqliteStore
from broadloom.mailboxes import SqliteMailboxStore
from broadloom.order.sqlite_store import SqliteOrderStore
from broadloom.switch import SqliteQueue


class Closable(Protocol):
    def close(self) -> None: ...


STORES: dict[str, Callable[[Path], Closable]] = {
    "groups": SqliteStore,
    "mailboxes": lambda path: SqliteMailboxStore(path, "channel"),
    "order": lambda path: SqliteOrderStore(path, 1),
    "switch": SqliteQueue,
}

every_store = pytest.mark.parametrize("open_store", STORES.values(), ids=STORES)


def check_message(error: pytest.ExceptionInfo[StoreError], path: Path, remedy: str) -> None:
    assert str(error.value).startswith(f"{path} ")
    assert remedy in str(error.value)
    assert error.value.path == path


@every_store
def test_store_is_private_and_open_in_one_program_at_a_time(
    tmp_path: Path, open_store: Callable[[Path], Closable]
) -> None:
    path = tmp_path / "store.db"
    store = open_store(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StoreLockedError, match="another program has it open") as error:
        open_store(path)
    check_message(error, path, "Close that program")
    store.close()
    open_store(path).close()


@every_store
def test_foreign_database_is_rejected_and_left_unchanged(
    tmp_path: Path, open_store: Callable[[Path], Closable]
) -> None:
    path = tmp_path / "browser.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table bookmarks (url text)")
    before = path.read_bytes()
    with pytest.raises(NotAStoreError, match="another program") as error:
        open_store(path)
    check_message(error, path, "Use another file")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["browser.db"]


@every_store
@pytest.mark.parametrize("content", [b"something else entirely" * 100, b"short"])
def test_file_that_is_no_database_is_rejected(
    tmp_path: Path, open_store: Callable[[Path], Closable], content: bytes
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(NotAStoreError) as error:
        open_store(path)
    check_message(error, path, "Use another file")
    assert path.read_bytes() == content


@every_store
def test_store_of_another_version_is_rejected(tmp_path: Path, open_store: Callable[[Path], Closable]) -> None:
    path = tmp_path / "store.db"
    open_store(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma user_version = 99")
    with pytest.raises(StoreVersionError, match="it has format 99") as error:
        open_store(path)
    check_message(error, path, "Use that version")


@every_store
def test_missing_folder_is_named(tmp_path: Path, open_store: Callable[[Path], Closable]) -> None:
    path = tmp_path / "nowhere" / "store.db"
    with pytest.raises(StoreError, match=f"there is no directory {path.parent}"):
        open_store(path)
    with pytest.raises(StoreError, match="it is a directory"):
        open_store(tmp_path)


def test_store_of_another_kind_is_recognized(tmp_path: Path) -> None:
    for kind, make in STORES.items():
        make(tmp_path / kind).close()
        for other, open_store in STORES.items():
            if other != kind:
                with pytest.raises(NotAStoreError, match="a Broadloom store of another kind"):
                    open_store(tmp_path / kind)
