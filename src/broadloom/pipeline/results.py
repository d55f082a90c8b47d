"""The results of a build: a folder of Parquet files per table, and a manifest that names the valid build.

    out/manifest.json
    out/messages/20270115T120000-3f9a1c2e/part-….parquet

Readers follow the manifest, which is replaced atomically when everything is written. So a build that crashes leaves the
previous results unchanged; its hidden files are removed by the next build. Reading does not need Java.
"""

import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError
from broadloom.pipeline.analysis.frames import empty, frame, with_schema
from broadloom.pipeline.table import Table
from broadloom.record.arrow_import import pa, pq
from broadloom.record.file_locks import lock
from broadloom.record.tape_file import sync_folder, write_atomically

if TYPE_CHECKING:
    import polars as pl

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
_BUILDING = ".building-"


class ResultsNotFoundError(BroadloomError):
    """The folder of results, or this table in it, does not exist."""


class ResultsWriteError(BroadloomError):
    """The results cannot be written, as on a full disk. The previous ones are unchanged."""


class ResultsLockedError(BroadloomError):
    """Another process is writing to the same folder."""


@dataclass(frozen=True, slots=True)
class TableBuild:
    build: str
    """Name of the folder inside the table's folder."""
    fingerprint: str
    """Hash of everything it was built from."""
    rows: int
    bytes: int
    seconds: float
    files: list[str] | None = None
    """Names of its files; None for all in the folder."""


@dataclass(slots=True)
class ResultsManifest:
    tables: dict[str, TableBuild] = field(default_factory=dict)
    tapes: dict[str, Any] = field(default_factory=dict)
    """What was read: folder, files, rows, bytes, quarantined files."""
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds per phase."""
    written: str = ""


class Results:
    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def manifest(self) -> ResultsManifest:
        """An empty one if there are no results yet."""
        try:
            data = json.loads((self.folder / MANIFEST).read_text())
        except FileNotFoundError:
            return ResultsManifest()
        except (OSError, ValueError) as problem:
            raise ResultsNotFoundError(f"{self.folder / MANIFEST} cannot be read: {problem}") from problem
        if data.get("version") != MANIFEST_VERSION:
            raise ResultsNotFoundError(
                f"{self.folder} was written by another version of Broadloom; choose another --out"
            )
        tables = {name: TableBuild(**each) for name, each in data["tables"].items()}
        return ResultsManifest(tables, data["tapes"], data["settings"], data["seconds"], data["written"])

    def table_path(self, name: str, built: TableBuild) -> Path:
        return self.folder / name / built.build

    def files(self, name: str) -> list[Path]:
        """The Parquet files of a table."""
        built = self.manifest().tables.get(name)
        if built is None:
            raise ResultsNotFoundError(
                f"no table {name!r} in {self.folder}; run: broadloom pipeline run --out {self.folder}"
            )
        folder = self.table_path(name, built)
        return sorted(folder.glob("*.parquet")) if built.files is None else [folder / each for each in built.files]

    def read(self, table: Table) -> pa.Table:
        """Read a whole table, without Spark. Columns that the version which built it did not have are null."""
        schema = table.schema
        parts = [with_schema(pq.read_table(path, partitioning=None), schema) for path in self.files(table.name)]
        return pa.concat_tables([empty(schema), *parts])

    def scan(self, table: Table) -> "pl.LazyFrame":
        """The same, lazily."""
        import polars as pl

        files = self.files(table.name)
        return pl.scan_parquet(files, hive_partitioning=False) if files else frame(empty(table.schema)).lazy()

    # -- writing

    @contextmanager
    def transaction(self) -> Iterator["ResultsTransaction"]:
        """One at a time. What is not committed is removed."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            held = (self.folder / ".lock").open("ab")
        except OSError as problem:
            raise ResultsNotFoundError(f"{self.folder} cannot be written: {problem}") from problem
        with held:
            if not lock(held):
                raise ResultsLockedError(
                    f"another process is writing to {self.folder}; wait for it, or choose another --out"
                )
            for stale in self.folder.glob(f"{_BUILDING}*"):
                shutil.rmtree(stale, ignore_errors=True)
            transaction = ResultsTransaction(self)
            try:
                yield transaction
            finally:
                shutil.rmtree(transaction.staging_path, ignore_errors=True)


class ResultsTransaction:
    """A build in progress, in a hidden folder."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self.build = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        self.staging_path = results.folder / f"{_BUILDING}{self.build}"

    def commit(self, manifest: ResultsManifest) -> None:
        """Move the new tables into place, replace the manifest atomically, then remove the tables they replace."""
        folder = self._results.folder
        moved: list[Path] = []
        try:
            for name, built in manifest.tables.items():
                if built.build == self.build:
                    self._remove_unlisted(name, built)
                    (folder / name).mkdir(exist_ok=True)
                    moved.append(self._results.table_path(name, built))
                    (self.staging_path / name).rename(moved[-1])
                    sync_folder(folder / name)
            self._write_manifest(manifest)
        except OSError as problem:
            for path in moved:
                shutil.rmtree(path, ignore_errors=True)
            raise ResultsWriteError(
                f"the results cannot be written to {folder}: {problem.strerror or problem}; "
                f"the previous results are unchanged"
            ) from problem
        for name, built in manifest.tables.items():
            for old in (folder / name).iterdir():
                if old.name != built.build:
                    shutil.rmtree(old, ignore_errors=True)

    def _remove_unlisted(self, name: str, built: TableBuild) -> None:
        """Files of failed attempts: programs that do not know the manifest read the whole folder."""
        if built.files is not None:
            for path in (self.staging_path / name).iterdir():
                if path.name not in built.files:
                    path.unlink()

    def _write_manifest(self, manifest: ResultsManifest) -> None:
        manifest.written = datetime.now(UTC).isoformat(timespec="seconds")
        data = {"version": MANIFEST_VERSION, **asdict(manifest)}
        write_atomically(self._results.folder / MANIFEST, json.dumps(data, indent=1).encode())
