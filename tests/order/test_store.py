"""The store of a voter: everything is on disk when a method returns, and a wrong file is recognized."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from broadloom import NotAStoreError, StoreCorruptError
from broadloom.order.log import NO_CHAIN, EpochStart, LogEntry
from broadloom.order.model import NO_EPOCH, Epoch
from broadloom.order.sqlite_store import SqliteOrderStore
from broadloom.order.store import MemoryOrderStore, OrderStore, StoredLog

BIG = 2**64 - 1
EPOCH = Epoch(3, BIG)
LINEAGE = (EpochStart(Epoch(1, 7), 1), EpochStart(EPOCH, 3))
ENTRIES = [LogEntry(BIG - 1, number, number - 1, b"key", b"data %d" % number) for number in range(1, 6)]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> OrderStore:
    return MemoryOrderStore(5) if request.param == "memory" else SqliteOrderStore(tmp_path / "store", 1)


def reopened(store: OrderStore, tmp_path: Path) -> OrderStore:
    if isinstance(store, MemoryOrderStore):
        return store
    store.close()
    return SqliteOrderStore(tmp_path / "store", 1)


def test_new_store_is_empty(store: OrderStore) -> None:
    assert store.load() == StoredLog(NO_EPOCH, (), (), 0, NO_CHAIN, {}, [])
    assert store.store_id > 0


def test_store_keeps_the_fence_and_the_log(store: OrderStore, tmp_path: Path) -> None:
    store_id = store.store_id
    store.replace(0, ENTRIES[:2], LINEAGE[:1], EPOCH, (1, BIG), None)
    store.append(3, ENTRIES[2:4])
    store.set_fence(Epoch(4, 1))
    store = reopened(store, tmp_path)
    assert store.load() == StoredLog(Epoch(4, 1), LINEAGE[:1], (1, BIG), 0, NO_CHAIN, {}, ENTRIES[:4])
    assert store.store_id == store_id
    store.replace(2, ENTRIES[4:], LINEAGE, EPOCH, (1, BIG), None)
    store = reopened(store, tmp_path)
    assert store.load() == StoredLog(EPOCH, LINEAGE, (1, BIG), 0, NO_CHAIN, {}, [*ENTRIES[:2], ENTRIES[4]])


def test_store_is_trimmed_and_restarted(store: OrderStore, tmp_path: Path) -> None:
    store.replace(0, ENTRIES, LINEAGE, EPOCH, (), None)
    store.trim(2, b"c" * 16, {BIG - 1: 2})
    store = reopened(store, tmp_path)
    assert store.load() == StoredLog(EPOCH, LINEAGE, (), 2, b"c" * 16, {BIG - 1: 2}, ENTRIES[2:])
    store.replace(100, ENTRIES[:1], LINEAGE, EPOCH, (), (b"d" * 16, {9: 100}))
    store = reopened(store, tmp_path)
    assert store.load() == StoredLog(EPOCH, LINEAGE, (), 100, b"d" * 16, {9: 100}, ENTRIES[:1])


def test_store_belongs_to_one_conversation(tmp_path: Path) -> None:
    path = tmp_path / "store"
    SqliteOrderStore(path, 1).close()
    with pytest.raises(NotAStoreError, match="it belongs to another conversation"):
        SqliteOrderStore(path, 2)
    SqliteOrderStore(path, 1).close()


def test_damaged_store_is_recognized(tmp_path: Path) -> None:
    store = SqliteOrderStore(tmp_path / "store", 1)
    store.append(1, ENTRIES)
    store.close()
    with sqlite3.connect(tmp_path / "store") as db:
        db.execute("delete from entries where position = 3")
    db.close()
    with pytest.raises(StoreCorruptError, match=r"entries are missing\. Do not restore a backup"):
        SqliteOrderStore(tmp_path / "store", 1).load()


WRITER = """
import sys
from broadloom.order.log import LogEntry
from broadloom.order.sqlite_store import SqliteOrderStore
store = SqliteOrderStore(sys.argv[1], 1)
number = 0
while True:
    number += 1
    store.append(number, [LogEntry(1, number, 0, b"", b"x" * 100)])
    print(number, flush=True)
"""


def test_killed_process_has_stored_what_it_acknowledged(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "store")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(20)][-1]
        os.kill(process.pid, signal.SIGKILL)
    entries = SqliteOrderStore(tmp_path / "store", 1).load().entries
    assert len(entries) >= acknowledged
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
