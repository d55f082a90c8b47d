"""One file of a tape, from its first row to its name.

The rule: a file that has its name is whole. Until then it is hidden (a leading dot, which Spark and pyarrow skip), its
writer holds a lock on it, and only the writer may touch it. It gets its name after everything is on the disk, in one
step.
"""

import os
from contextlib import suppress
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from broadloom.record.arrow_import import pa, pq
from broadloom.record.dropped_rows import Key, RowRange
from broadloom.record.file_locks import lock
from broadloom.record.schema import CHANNEL_DIGITS, COLUMNS, file_schema

BATCHES_MAX = 64
"""Batches gathered for a row group before they are made one: many small ones take more room than their rows."""

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()

_DELTAS = dict.fromkeys(("ordinal", "event_time", "sequence"), "DELTA_BINARY_PACKED")
_DICTIONARY = [each.name for each in COLUMNS if each.name not in _DELTAS and each.name != "payload"]


def partition_folder(directory: Path, key: Key) -> Path:
    channel, day = key
    return (
        directory
        / f"channel={channel[:CHANNEL_DIGITS]}"
        / f"event_date={date.fromordinal(EPOCH_ORDINAL + day).isoformat()}"
    )


class TapeFile:
    """Any OSError of a method means that the file is to be abandoned."""

    def __init__(self, directory: Path, key: Key, run_id: str, number: int, opened_at: float) -> None:
        self.key = key
        self.opened_at = opened_at
        self.row_range: RowRange | None = None
        """Everything in it, rows told of by gaps included."""
        self.already_reported = 0
        """Rows that its gap rows tell of."""
        self.buffered_bytes = 0
        self.written_bytes = 0
        self._buffered: list[pa.RecordBatch] = []
        self._schema = file_schema(key[0], run_id)
        folder = partition_folder(directory, key)
        make_folder(folder, directory)
        self.path = folder / f"{run_id}-{number:06d}.parquet"
        self._writer: Any = None
        self._sink, self._hidden_path = _create(self.path)
        try:
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression="zstd",
                use_dictionary=_DICTIONARY,
                column_encoding=_DELTAS,
                write_page_checksum=True,
            )
            self._flush()
        except BaseException:
            self.abandon()
            raise

    @property
    def rows(self) -> int:
        """Rows of events in it, without gap rows."""
        return self.row_range.rows - self.already_reported if self.row_range is not None else 0

    def add(self, batch: pa.RecordBatch, row_range: RowRange, *, already_reported: int = 0) -> None:
        """Gather rows; `told` as in `Lost.add`."""
        if self.row_range is None:
            self.row_range = row_range
        else:
            self.row_range.include(row_range)
        self.already_reported += already_reported
        self._buffered.append(batch)
        self.buffered_bytes += batch.nbytes
        if len(self._buffered) > BATCHES_MAX:
            self._buffered = pa.Table.from_batches(self._buffered).combine_chunks().to_batches()

    def write_row_group(self) -> None:
        """Write what was gathered."""
        if self._buffered:
            table = pa.Table.from_batches(self._buffered, self._schema)
            self._buffered.clear()
            self.buffered_bytes = 0
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._flush()

    def finish(self) -> None:
        """Everything onto the disk, then the name. The lock ends last."""
        self.write_row_group()
        self._writer.close()
        self._flush()
        os.fsync(self._sink.fileno())
        self._hidden_path.rename(self.path)
        sync_folder(self.path.parent)
        self._sink.close()

    def after_fork(self) -> None:
        """Let go of it without leaving a mark: it belongs to the process that this one was forked from."""
        self._writer.is_open = False
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), self._sink.fileno())

    def _flush(self) -> None:
        """Nothing stays in our memory between two steps, where a forked child would find it and write it again."""
        self._sink.flush()
        self.written_bytes = self._sink.tell()

    def abandon(self) -> None:
        """Remove what is there of it: without its end a file cannot be read."""
        self._buffered.clear()
        if self._writer is not None:
            with suppress(Exception):
                self._writer.close()
            self._writer.is_open = False  # else it would try again when it is collected
        for path in (self._hidden_path, self.path):  # it has its name already if only its folder could not be synced
            with suppress(OSError):
                path.unlink()
        with suppress(OSError, ValueError):
            self._sink.close()


def _create(path: Path) -> tuple[BinaryIO, Path]:
    """A new hidden file, locked.

    Someone who sweeps up may take it for left over between the two steps, and will remove it: then another name is
    tried, because the sweeper goes by the name.
    """
    for attempt in count():
        hidden = path.with_name(f".{path.stem}.{attempt}{path.suffix}" if attempt else f".{path.name}")
        sink = hidden.open("xb")
        try:
            ours = lock(sink) and os.fstat(sink.fileno()).st_nlink > 0
        except OSError:
            ours = True  # no locks on this file system: no sweeper gets one either
        if ours:
            return sink, hidden
        sink.close()
    raise AssertionError("there is always another name")


def make_folder(folder: Path, top: Path) -> None:
    """Folders down to this one, each entered on the disk."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    while folder != top:
        folder = folder.parent
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """A new name is on the disk only when its folder is."""
    if os.name != "posix":
        return  # elsewhere folders cannot be opened
    entry = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)
