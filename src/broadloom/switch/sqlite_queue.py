"""`SqliteQueue`: the queues of a switch in one SQLite file, so that what was queued survives a crash."""

import os

from broadloom.sqlite_file import SqliteFile, StoreSchema
from broadloom.switch.queue_store import StoredMessage

_TABLE = """
create table queue (
    row integer primary key autoincrement, program text not null, copy blob not null, queued_at_ms integer not null,
    expires_at_ms integer not null, is_marked integer not null default 0)
"""
_SCHEMA = StoreSchema(application_id=0x42725377, format=1, tables=_TABLE)  # "BrSw"


class SqliteQueue:
    """A `QueueStore` in the file `path`, which is created if it does not exist. One program at a time has it open."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = SqliteFile(path, _SCHEMA)

    def add(self, program: str, copy: bytes, queued_at_ms: int, expires_at_ms: int) -> int:
        query = "insert into queue (program, copy, queued_at_ms, expires_at_ms) values (?, ?, ?, ?) returning row"
        return int(self._file.rows(query, program, copy, queued_at_ms, expires_at_ms)[0][0])

    def mark(self, row: int, is_marked: bool) -> None:
        self._file.rows("update queue set is_marked = ? where row = ?", is_marked, row)

    def remove(self, row: int) -> None:
        self._file.rows("delete from queue where row = ?", row)

    def load(self) -> list[StoredMessage]:
        query = "select row, program, copy, queued_at_ms, expires_at_ms, is_marked from queue order by row"
        return [StoredMessage(*values) for values in self._file.rows(query)]

    def close(self) -> None:
        self._file.close()
