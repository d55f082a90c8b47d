"""Live tables on disk: Parquet files, and a manifest per batch that lists the valid ones.

A batch is committed when its manifest exists, which is renamed into place after everything else is on disk. It has the
offset that was reached, so that the next batch continues exactly there. Files of a crashed batch are in no manifest and
are removed. A manifest is self-contained: a reader needs no other, and no Spark.
"""

import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from broadloom.errors import BroadloomError
from broadloom.pipeline.live.tables import TABLES
from broadloom.pipeline.spark_source.offsets import TapeOffset
from broadloom.record.arrow_import import pa, pc, pq
from broadloom.record.file_locks import lock
from broadloom.record.tape_file import sync_folder, write_atomically

MANIFESTS_RETAINED = 4
"""A reader has the time of this many batches before a file is removed."""

MERGE_FILE_COUNT = 8
"""Final rows are appended as small files; this many of one level are merged into one of the next."""

READ_ATTEMPTS = 5

_NAME = "batch-{:09d}.json"


class LiveStateMismatchError(BroadloomError):
    """This process cannot continue the tables in the folder."""


class LiveTablesNotFoundError(BroadloomError):
    """The folder has no live tables yet."""


@dataclass(slots=True)
class BatchManifest:
    batch: int
    rows: int = 0
    """Events read so far."""
    excluded_rows: int = 0
    """Of these, events that are in no table."""
    created_at: str = ""
    offset: dict[str, Any] | None = None
    """What was read so far: a `TapeOffset` as JSON."""
    watermarks: dict[str, int] = field(default_factory=dict)
    """By channel, microseconds since 1970."""
    final: dict[str, list[list[Any]]] = field(default_factory=dict)
    """By table: files of final rows, each with its merge level."""
    open: dict[str, str] = field(default_factory=dict)
    """By table: the file of rows that may still change."""
    states: dict[str, str] = field(default_factory=dict)
    """By channel: the file with its state."""

    @property
    def files(self) -> set[str]:
        final = {name for files in self.final.values() for name, _ in files}
        return final | set(self.open.values()) | set(self.states.values())


class LiveStore:
    """A folder of live tables. Only one process may write to it."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._parts = self.folder / "parts"

    # -- reading

    def manifest(self) -> BatchManifest | None:
        """The newest; None if there is none yet."""
        names = sorted(path.name for path in self.folder.glob("batch-*.json"))
        return BatchManifest(**json.loads((self.folder / names[-1]).read_text())) if names else None

    def read(self, table: str) -> pa.Table:
        """All rows of a live table, as of the newest batch."""
        schema = TABLES[table].schema
        for attempt in range(READ_ATTEMPTS):
            manifest = self.manifest()
            if manifest is None:
                raise LiveTablesNotFoundError(f"no live tables in {self.folder}; run: broadloom pipeline run --follow")
            names = [name for name, _ in manifest.final.get(table, [])]
            names += [manifest.open[table]] if table in manifest.open else []
            try:
                return pa.concat_tables([schema.empty_table(), *(self._table(name) for name in names)]).cast(schema)
            except FileNotFoundError:  # removed in the meantime: there is a newer manifest
                if attempt + 1 == READ_ATTEMPTS:
                    raise
        raise AssertionError

    def states(self, manifest: BatchManifest | None) -> pa.Table:
        """The state of each channel: `channel` and `state`."""
        tables = [_STATES.empty_table()]
        if manifest is not None:
            for name in sorted(set(manifest.states.values())):
                table = self._table(name)
                channels = [channel for channel, file in manifest.states.items() if file == name]
                tables.append(table.filter(pc.is_in(table["channel"], pa.array(channels, pa.string()))))
        return pa.concat_tables(tables)

    def _table(self, name: str) -> pa.Table:
        return pq.read_table(self._parts / name, partitioning=None)

    # -- writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Only one process at a time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("ab") as held:
            if not lock(held):
                raise LiveStateMismatchError(f"another process keeps {self.folder} up to date; choose another --out")
            self.remove_stale_files()
            yield

    def offset(self, manifest: BatchManifest | None) -> TapeOffset:
        """What the batches up to this one have read."""
        if manifest is not None and manifest.offset is None:
            raise LiveStateMismatchError(
                f"{self.folder} was written by an earlier version of Broadloom; choose another --out"
            )
        return TapeOffset.from_json(manifest.offset if manifest is not None and manifest.offset else {})

    def commit(
        self, manifest: BatchManifest, previous: BatchManifest | None, tables: dict[str, pa.Table], states: pa.Table
    ) -> BatchManifest:
        """Write a batch. `manifest` has its counts; the tables have rows of the channels in `states`."""
        self._parts.mkdir(parents=True, exist_ok=True)
        before = previous or BatchManifest(-1)
        channels = states["channel"]
        manifest.final = {name: [*before.final.get(name, [])] for name in TABLES}
        for name, table in tables.items():
            final = table.filter(table["is_final"])
            if final.num_rows:
                manifest.final[name].append([self._write(name, manifest.batch, final), 0])
            self._merge(name, manifest)
            old = self._table(before.open[name]) if name in before.open else table.schema.empty_table()
            old = old.filter(pc.invert(pc.is_in(old["channel"], channels.combine_chunks())))
            current = pa.concat_tables([old.cast(table.schema), table.filter(pc.invert(table["is_final"]))])
            if current.num_rows:
                manifest.open[name] = self._write(f"{name}-open", manifest.batch, current)
        file = self._write("state", manifest.batch, states)
        manifest.states = before.states | dict.fromkeys(channels.to_pylist(), file)
        sync_folder(self._parts)
        write_atomically(self.folder / _NAME.format(manifest.batch), json.dumps(asdict(manifest)).encode())
        return manifest

    def _merge(self, table: str, manifest: BatchManifest) -> None:
        files = manifest.final[table]
        while len(files) >= MERGE_FILE_COUNT and len({level for _, level in files[-MERGE_FILE_COUNT:]}) == 1:
            last = files[-MERGE_FILE_COUNT:]
            merged = pa.concat_tables([self._table(name) for name, _ in last])
            files[-MERGE_FILE_COUNT:] = [[self._write(table, manifest.batch, merged), last[0][1] + 1]]

    def _write(self, name: str, batch: int, table: pa.Table) -> str:
        file = f"{name}-{batch:09d}-{secrets.token_hex(4)}.parquet"
        with (self._parts / file).open("xb") as sink:
            pq.write_table(table, sink, compression="zstd")
            sink.flush()
            os.fsync(sink.fileno())
        return file

    def remove_stale_files(self) -> None:
        """Remove old manifests, and files that are in no manifest."""
        manifests = sorted(self.folder.glob("batch-*.json"))
        for path in manifests[:-MANIFESTS_RETAINED]:
            path.unlink()
        needed: set[str] = set()
        for path in manifests[-MANIFESTS_RETAINED:]:
            needed |= BatchManifest(**json.loads(path.read_text())).files
        _remove(path for path in self._parts.glob("*.parquet") if path.name not in needed)
        _remove(self.folder.glob(".batch-*"))


_STATES = pa.schema([("channel", pa.string()), ("state", pa.binary())])


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
