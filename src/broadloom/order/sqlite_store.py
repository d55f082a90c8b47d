"""`SqliteOrderStore`: what a voter has voted for and stored, in one SQLite file.

Every change is one transaction that is on disk when the method returns (`synchronous = full`). A file belongs to one
voter of one conversation and is open in one program at a time: a copy of it would vote twice.
"""

import os
import secrets
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from broadloom.errors import BroadloomError
from broadloom.order.log import EpochStart, LogEntry
from broadloom.order.model import Epoch
from broadloom.order.store import StoredLog
from broadloom.private_files import open_new, warn_if_readable_by_others
from broadloom.wire import PeerId

APPLICATION_ID = 0x42726C6F
""""Brlo", in the header of the file (SQLite's application_id)."""
FORMAT = 1
LOCK_TIMEOUT_S = 0.2
_TABLES = """
create table state (
    conversation blob not null, store_id blob not null, fence blob not null, lineage blob not null,
    enrolled blob not null, base integer not null, base_chain blob not null, base_numbers blob not null);
create table entries (
    position integer primary key, author blob not null, number integer not null, original integer not null,
    key blob not null, data blob not null);
"""


class OrderStoreError(BroadloomError):
    """The store of a voter cannot be opened, read or written."""


class SqliteOrderStore:
    """An `OrderStore` in the file `path`, which is created if it does not exist."""

    def __init__(self, path: str | os.PathLike[str], conversation: int) -> None:
        self._path = Path(path)
        try:
            os.close(open_new(self._path))
        except FileExistsError:
            warn_if_readable_by_others(self._path, "the store")
        except OSError:
            pass  # SQLite fails too, and its error names the reason
        with self._errors():
            self._db = sqlite3.connect(self._path, timeout=LOCK_TIMEOUT_S, isolation_level=None)
        try:
            self._store_id = self._open(conversation.to_bytes(8, "big"))
        except BaseException:
            self._db.close()
            raise

    def _open(self, conversation: bytes) -> int:
        with self._errors():
            self._db.execute("pragma locking_mode = exclusive")
            tables = self._db.execute("select count(*) from sqlite_schema").fetchone()[0]
            if tables and self._db.execute("pragma application_id").fetchone()[0] != APPLICATION_ID:
                raise OrderStoreError(f"{self._path} is another program's database. Use another file.")
            if tables and self._db.execute("pragma user_version").fetchone()[0] != FORMAT:
                raise OrderStoreError(f"{self._path} was written by another version of Broadloom. Use that version.")
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = full")
            with self._transaction():
                if not tables:
                    self._create(conversation)
                stored, store_id = self._db.execute("select conversation, store_id from state").fetchone()
        if stored != conversation:
            raise OrderStoreError(
                f"{self._path} is the store of another conversation, or of other voters. Use one file for each."
            )
        return int.from_bytes(store_id, "big")

    def _create(self, conversation: bytes) -> None:
        self._db.execute(f"pragma application_id = {APPLICATION_ID}")
        self._db.execute(f"pragma user_version = {FORMAT}")
        for statement in _TABLES.split(";"):
            self._db.execute(statement)
        store_id = (secrets.randbits(63) + 1).to_bytes(8, "big")
        empty = StoredLog()
        self._db.execute(
            "insert into state values (?, ?, ?, ?, ?, ?, ?, ?)",
            (conversation, store_id, _packed(empty.fence), b"", b"", 0, empty.base_chain, b""),
        )

    @property
    def store_id(self) -> int:
        return self._store_id

    def load(self) -> StoredLog:
        with self._errors():
            fence, lineage, enrolled, base, chain, base_numbers = self._db.execute(
                "select fence, lineage, enrolled, base, base_chain, base_numbers from state"
            ).fetchone()
            rows = self._db.execute("select author, number, original, key, data from entries order by position")
            entries = [LogEntry(PeerId(int.from_bytes(author, "big")), *rest) for author, *rest in rows]
            count, last = self._db.execute(
                "select count(*), coalesce(max(position), ?) from entries", (base,)
            ).fetchone()
        if last != base + count:
            raise OrderStoreError(
                f"{self._path} is damaged: entries are missing. Do not restore a backup, which has forgotten votes: "
                "continue without this voter, or start another conversation."
            )
        return StoredLog(
            Epoch(*_unpacked(fence)),
            _unpacked_lineage(_unpacked(lineage)),
            _unpacked(enrolled),
            base,
            chain,
            dict(zip(_unpacked(base_numbers)[::2], _unpacked(base_numbers)[1::2], strict=True)),
            entries,
        )

    def set_fence(self, epoch: Epoch) -> None:
        with self._errors(), self._transaction():
            self._db.execute("update state set fence = ?", (_packed(epoch),))

    def append(self, first_index: int, entries: Sequence[LogEntry]) -> None:
        with self._errors(), self._transaction():
            self._insert(first_index, entries)

    def _insert(self, first_index: int, entries: Sequence[LogEntry]) -> None:
        self._db.executemany(
            "insert into entries values (?, ?, ?, ?, ?, ?)",
            [
                (index, entry.author.to_bytes(8, "big"), entry.number, entry.original, entry.key, entry.data)
                for index, entry in enumerate(entries, first_index)
            ],
        )

    def replace(
        self,
        fork: int,
        entries: Sequence[LogEntry],
        lineage: tuple[EpochStart, ...],
        fence: Epoch,
        enrolled: tuple[int, ...],
        snapshot: tuple[bytes, dict[PeerId, int]] | None,
    ) -> None:
        with self._errors(), self._transaction():
            if snapshot is not None:
                self._db.execute("delete from entries")
                self._set_base(fork, *snapshot)
            else:
                self._db.execute("delete from entries where position > ?", (fork,))
            self._insert(fork + 1, entries)
            self._db.execute(
                "update state set fence = ?, lineage = ?, enrolled = ?",
                (
                    _packed(fence),
                    _packed(number for start in lineage for number in (*start.epoch, start.first_index)),
                    _packed(enrolled),
                ),
            )

    def trim(self, base: int, chain: bytes, numbers: dict[PeerId, int]) -> None:
        with self._errors(), self._transaction():
            self._db.execute("delete from entries where position <= ?", (base,))
            self._set_base(base, chain, numbers)

    def _set_base(self, base: int, chain: bytes, numbers: dict[PeerId, int]) -> None:
        self._db.execute(
            "update state set base = ?, base_chain = ?, base_numbers = ?",
            (base, chain, _packed(number for pair in numbers.items() for number in pair)),
        )

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:
            raise  # a bug, or use after close
        except sqlite3.Error as problem:
            text = "another program has it open" if "locked" in str(problem) else str(problem)
            raise OrderStoreError(
                f"{self._path} cannot be used: {text}. A voter needs its own file, on a disk with free space."
            ) from None


def _packed(values: Iterable[int]) -> bytes:
    return b"".join(value.to_bytes(8, "big") for value in values)


def _unpacked(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(data) // 8}Q", data)


def _unpacked_lineage(values: tuple[int, ...]) -> tuple[EpochStart, ...]:
    triples = zip(values[::3], values[1::3], values[2::3], strict=True)
    return tuple(EpochStart(Epoch(number, peer_id), first_index) for number, peer_id, first_index in triples)
