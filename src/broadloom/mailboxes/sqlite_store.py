"""`SqliteMailboxStore`: the records of a keeper in one SQLite file.

A file belongs to one channel and is open in one program at a time. What was committed survives a crash of the machine.
"""

import os

from broadloom.errors import NotAStoreError
from broadloom.mailboxes.record import RECORD, Record
from broadloom.sqlite_file import SqliteFile, StoreSchema
from broadloom.wire.xdr import WireError

_TABLES = """
create table channel (name text not null);
create table records (
    owner text not null, name text not null, record blob not null, credential blob not null,
    primary key (owner, name)) without rowid;
"""
_SCHEMA = StoreSchema(application_id=0x42724D62, format=1, tables=_TABLES)  # "BrMb"


class SqliteMailboxStore:
    def __init__(self, path: str | os.PathLike[str], channel: str) -> None:
        def check_channel(file: SqliteFile, is_new: bool) -> None:
            if is_new:
                file.rows("insert into channel values (?)", channel)
            names = [name for (name,) in file.rows("select name from channel")]
            if names != [channel]:
                raise NotAStoreError(file.path, f"it belongs to the channel {''.join(names)!r}")

        self._file = SqliteFile(path, _SCHEMA, check_channel)
        self._file.commit()

    def load(self) -> list[Record]:
        rows = self._file.rows("select record, credential from records order by owner, name")
        try:
            return [RECORD.unpack(record, 0)[0][0]._replace(credential=credential) for record, credential in rows]
        except (WireError, ValueError) as problem:
            raise self._file.damaged(str(problem)) from None

    def put(self, record: Record) -> None:
        out: list[bytes] = []
        RECORD.pack((record, 0), out)
        self._file.rows(
            "insert or replace into records values (?, ?, ?, ?)",
            record.owner,
            record.name,
            b"".join(out),
            record.credential,
        )

    def remove(self, owner: str, name: str) -> None:
        self._file.rows("delete from records where owner = ? and name = ?", owner, name)

    def commit(self) -> None:
        self._file.commit()

    def close(self) -> None:
        self._file.close()
