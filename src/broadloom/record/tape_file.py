"""`TapeFile`: one Parquet file, from its first row to its final name.

A file with its name is complete. It gets its name atomically, after all its data is on disk.
"""

import os
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO

from broadloom.record.arrow_import import pa, pq
from broadloom.record.dropped_rows import Key, RowRange
from broadloom.record.schema import CHANNEL_DIGITS, COLUMNS, file_schema
from broadloom.record.unfinished_file import UnfinishedFile

BATCHES_MAX = 64
"""Buffered batches are combined beyond this number: many small ones need more memory than their rows."""

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
    """After an `OSError` from any method, call `abandon`."""

    def __init__(self, directory: Path, key: Key, run_id: str, number: int, opened_at: float) -> None:
        self.key = key
        self.opened_at = opened_at
        self.row_range: RowRange | None = None
        """Of all rows, including those that its `rows_dropped` rows report."""
        self.already_reported = 0
        """Rows that its `rows_dropped` rows report."""
        self.buffered_bytes = 0
        self.written_bytes = 0
        self._buffered: list[pa.RecordBatch] = []
        self._schema = file_schema(key[0], run_id)
        folder = partition_folder(directory, key)
        make_folder(folder, directory)
        self._writer: Any = None
        self._file = UnfinishedFile(folder / f"{run_id}-{number:06d}.parquet")
        self._sink = self._file.sink
        try:
            self._writer = open_writer(self._sink, self._schema)
            self._flush()
        except BaseException:
            self.abandon()
            raise

    @property
    def rows(self) -> int:
        """Event rows, without `rows_dropped` rows."""
        return self.row_range.rows - self.already_reported if self.row_range is not None else 0

    def add(self, batch: pa.RecordBatch, row_range: RowRange, *, already_reported: int = 0) -> None:
        """Buffer rows. `already_reported` as in `DroppedRows.add`."""
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
        if self._buffered:
            table = pa.Table.from_batches(self._buffered, self._schema)
            self._buffered.clear()
            self.buffered_bytes = 0
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._flush()

    def finish(self) -> None:
        """Sync the data, then give the file its name."""
        self.write_row_group()
        self._writer.close()
        self._flush()
        self._file.sync()
        self._file.publish()
        sync_folder(self._file.path.parent)
        self._sink.close()

    def after_fork(self) -> None:
        """In a forked child: release the file without writing to it, because it belongs to the parent."""
        self._writer.is_open = False
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), self._sink.fileno())

    def _flush(self) -> None:
        """Buffers are empty between two calls, or a forked child would write them again."""
        self._sink.flush()
        self.written_bytes = self._sink.tell()

    def abandon(self) -> None:
        """Remove the file: without its footer it cannot be read."""
        self._buffered.clear()
        if self._writer is not None:
            with suppress(Exception):
                self._writer.close()
            self._writer.is_open = False  # or it would try again when it is garbage-collected
        self._file.remove()


def open_writer(sink: BinaryIO, schema: pa.Schema) -> Any:
    """A Parquet writer with the encodings of a tape."""
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=_DICTIONARY,
        column_encoding=_DELTAS,
        write_page_checksum=True,
    )


def make_folder(folder: Path, top: Path) -> None:
    """Create a folder and its parents, and sync each."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    while folder != top:
        folder = folder.parent
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """A new name is durable only when its folder is synced."""
    if os.name != "posix":
        return  # folders cannot be opened on Windows
    entry = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file. It is on disk when this returns, and a reader sees the old content or the new."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with hidden.open("wb") as sink:
            sink.write(data)
            sink.flush()
            os.fsync(sink.fileno())
        hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)
    sync_folder(path.parent)
