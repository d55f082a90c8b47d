"""`SqliteOrderStore`: what a voter has voted for and stored, in one SQLite file.

Every change is one transaction that is on disk when the method returns (`synchronous = full`). A file belongs to one
voter of one conversation and is open in one program at a time: a copy of it would vote twice.
"""

import os
import secrets
import struct
from collections.abc import Iterable, Sequence

from broadloom.errors import NotAStoreError
from broadloom.order.log import EpochStart, LogEntry
from broadloom.order.model import Epoch
from broadloom.order.store import StoredLog
from broadloom.sqlite_file import SqliteFile, StoreSchema
from broadloom.wire import PeerId

_TABLES = """
create table state (
    conversation blob not null, store_id blob not null, fence blob not null, lineage blob not null,
    enrolled blob not null, base integer not null, base_chain blob not null, base_numbers blob not null);
create table entries (
    position integer primary key, author blob not null, number integer not null, original integer not null,
    key blob not null, data blob not null);
"""
_SCHEMA = StoreSchema(
    application_id=0x42726C6F,  # "Brlo"
    format=1,
    tables=_TABLES,
    damage_remedy="Do not restore a backup, which has forgotten votes: continue without this voter, or start another "
    "conversation.",
)


class SqliteOrderStore:
    """An `OrderStore` in the file `path`, which is created if it does not exist."""

    def __init__(self, path: str | os.PathLike[str], conversation: int) -> None:
        own = conversation.to_bytes(8, "big")

        def check_conversation(file: SqliteFile, is_new: bool) -> None:
            if is_new:
                store_id = (secrets.randbits(63) + 1).to_bytes(8, "big")
                empty = StoredLog()
                values = (own, store_id, _packed(empty.fence), b"", b"", 0, empty.base_chain, b"")
                file.rows("insert into state values (?, ?, ?, ?, ?, ?, ?, ?)", *values)
            if file.rows("select conversation from state") != [(own,)]:
                raise NotAStoreError(file.path, "it belongs to another conversation, or to other voters")

        self._file = SqliteFile(path, _SCHEMA, check_conversation)
        self._store_id = int.from_bytes(self._file.rows("select store_id from state")[0][0], "big")

    @property
    def store_id(self) -> int:
        return self._store_id

    def load(self) -> StoredLog:
        fence, lineage, enrolled, base, chain, base_numbers = self._file.rows(
            "select fence, lineage, enrolled, base, base_chain, base_numbers from state"
        )[0]
        rows = self._file.each_row("select author, number, original, key, data from entries order by position")
        entries = [LogEntry(PeerId(int.from_bytes(author, "big")), *rest) for author, *rest in rows]
        [(last,)] = self._file.rows("select coalesce(max(position), ?) from entries", base)
        if last != base + len(entries):
            raise self._file.damaged("entries are missing")
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
        with self._file.transaction():
            self._file.rows("update state set fence = ?", _packed(epoch))

    def append(self, first_index: int, entries: Sequence[LogEntry]) -> None:
        with self._file.transaction():
            self._insert(first_index, entries)

    def _insert(self, first_index: int, entries: Sequence[LogEntry]) -> None:
        self._file.write_rows(
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
        with self._file.transaction():
            if snapshot is not None:
                self._file.rows("delete from entries")
                self._set_base(fork, *snapshot)
            else:
                self._file.rows("delete from entries where position > ?", fork)
            self._insert(fork + 1, entries)
            self._file.rows(
                "update state set fence = ?, lineage = ?, enrolled = ?",
                _packed(fence),
                _packed(number for start in lineage for number in (*start.epoch, start.first_index)),
                _packed(enrolled),
            )

    def trim(self, base: int, chain: bytes, numbers: dict[PeerId, int]) -> None:
        with self._file.transaction():
            self._file.rows("delete from entries where position <= ?", base)
            self._set_base(base, chain, numbers)

    def _set_base(self, base: int, chain: bytes, numbers: dict[PeerId, int]) -> None:
        self._file.rows(
            "update state set base = ?, base_chain = ?, base_numbers = ?",
            base,
            chain,
            _packed(number for pair in numbers.items() for number in pair),
        )

    def close(self) -> None:
        self._file.close()


def _packed(values: Iterable[int]) -> bytes:
    return b"".join(value.to_bytes(8, "big") for value in values)


def _unpacked(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(data) // 8}Q", data)


def _unpacked_lineage(values: tuple[int, ...]) -> tuple[EpochStart, ...]:
    triples = zip(values[::3], values[1::3], values[2::3], strict=True)
    return tuple(EpochStart(Epoch(number, peer_id), first_index) for number, peer_id, first_index in triples)
