"""Incremental build: tapes in, tables out.

Each table has a fingerprint of the tapes, settings and code it is built from. A table with the same fingerprint is
reused; if all are, Spark is not even started.
"""

import hashlib
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from broadloom import __version__
from broadloom.errors import BroadloomError
from broadloom.pipeline.quarantine import QUARANTINE_COLUMNS
from broadloom.pipeline.results import Results, ResultsManifest, ResultsTransaction, TableBuild, count_rows_and_bytes
from broadloom.pipeline.spark_session import DRIVER_MEMORY, is_embedded, session
from broadloom.pipeline.table import SettingValue, Table, TableInputs, ddl, resolve_settings
from broadloom.pipeline.tables import all_tables, with_dependencies
from broadloom.pipeline.tape_set import (
    LOCAL_FILES_MAX,
    FileId,
    TapeSet,
    TapesNotFoundError,
    events,
    examine_tapes,
    file_ids,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK_BYTES = 8 << 20
"""About a million events: below that, startup is most of the work."""

_NOT_FINGERPRINTED = {
    "live",
    "overlay_study",
    "plot.py",
    "reference.py",
    "sidecar.py",
    "sidecar_client.py",
    "spark_source",
    "synthetic",
}
"""Modules that do not affect the content of tables."""


class BuildError(BroadloomError):
    """A table could not be built. The previous results are unchanged."""


class ProgressListener(Protocol):
    def on_phase(self, text: str) -> None: ...

    def on_table(self, name: str, index: int, total: int) -> None: ...


class NoProgress:
    def on_phase(self, text: str) -> None:
        pass

    def on_table(self, name: str, index: int, total: int) -> None:
        pass


@dataclass(slots=True)
class BuildResult:
    manifest: ResultsManifest
    built: list[str] = field(default_factory=list)
    reused: list[str] = field(default_factory=list)
    """Tables with an unchanged fingerprint."""


def build_tables(
    tapes: Path | str,
    out: Path | str,
    *,
    only: list[str] | None = None,
    settings: Mapping[str, str] | None = None,
    master: str | None = None,
    memory: str = DRIVER_MEMORY,
    progress: ProgressListener | None = None,
    spark: "SparkSession | None" = None,
) -> BuildResult:
    """Build all tables, or `only` these and their dependencies.

    Without `spark`, a session is started and left running for the caller to stop.
    """
    began = time.monotonic()
    progress = progress or NoProgress()
    tables = with_dependencies(only) if only else all_tables()
    chosen = resolve_settings(all_tables(), settings or {})
    folder, results = Path(tapes), Results(out)
    found = file_ids(folder)
    if not found:
        raise TapesNotFoundError(f"no tapes in {folder}")
    with results.transaction() as transaction:
        previous = results.manifest()
        prints = fingerprints(tables, found, chosen)
        kept = {
            name: previous.tables[name]
            for name in prints
            if name in previous.tables
            # Rows that were in the future then may be valid now.
            and not previous.tapes.get("future_rows")
            and previous.tables[name].fingerprint == prints[name]
            and results.table_path(name, previous.tables[name]).is_dir()
        }
        outcome = BuildResult(previous, [], list(kept))
        if len(kept) == len(tables):
            return outcome
        build = _Build(folder, results, transaction, tables, kept, prints, chosen, progress, previous)
        seconds = build.run(spark, master, memory, sum(each[1] for each in found))
        tape_set = build.tapes
        assert tape_set is not None
        # Tables of other tapes, settings or code would contradict the new ones, so they are dropped.
        others = fingerprints(all_tables(), found, chosen)
        cumulative = {table.name for table in all_tables() if table.is_cumulative}
        valid = {
            name: each
            for name, each in previous.tables.items()
            if others.get(name) == each.fingerprint or name in cumulative
        }
        outcome.manifest = ResultsManifest(
            {**valid, **kept, **build.built},
            {
                "folder": str(folder.absolute()),
                "files": len(tape_set.files),
                "files_used": len(tape_set.used),
                "rows": tape_set.rows,
                "bytes": tape_set.bytes,
                "quarantined": tape_set.quarantine.num_rows,
                "future_rows": sum(each.future_rows for each in tape_set.files),
            },
            dict(chosen),
            {**seconds, "total": round(time.monotonic() - began, 3)},
        )
        transaction.commit(outcome.manifest)
        outcome.built = list(build.built)
    return outcome


class _Build:
    def __init__(
        self,
        folder: Path,
        results: Results,
        transaction: ResultsTransaction,
        tables: tuple[Table, ...],
        reused: dict[str, TableBuild],
        fingerprints: dict[str, str],
        settings: dict[str, SettingValue],
        progress: ProgressListener,
        previous: ResultsManifest,
    ) -> None:
        self.tapes: TapeSet | None = None
        self.built: dict[str, TableBuild] = {}
        self._folder = folder
        self._results = results
        self._transaction = transaction
        self._tables = tables
        self._reused = reused
        self._fingerprints = fingerprints
        self._settings = settings
        self._progress = progress
        self._previous = previous

    def run(self, spark: "SparkSession | None", master: str | None, memory: str, tape_bytes: int) -> dict[str, float]:
        """Returns the seconds per phase."""
        began = time.monotonic()
        seconds: dict[str, float] = {}
        with ThreadPoolExecutor(1) as executor:
            # The files are examined while Spark starts.
            few = len(file_ids(self._folder)) <= LOCAL_FILES_MAX
            examined = executor.submit(examine_tapes, self._folder) if few and master is None else None
            if spark is None:
                self._progress.on_phase("starting Spark")
                spark = session(master, name="broadloom pipeline", memory=memory, quick=tape_bytes < QUICK_BYTES)
            seconds["start"] = round(time.monotonic() - began, 3)
            self._progress.on_phase("examining the tapes")
            try:
                self.tapes = examined.result() if examined is not None else examine_tapes(self._folder, spark=spark)
            except BroadloomError:
                raise
            except Exception as problem:
                raise BuildError(f"the tapes could not be examined: {_first_line(problem)}") from problem
        seconds["examine"] = round(time.monotonic() - began - seconds["start"], 3)
        inputs = TableInputs(spark, events(spark, self.tapes), self._settings, rows=self.tapes.rows)
        quarantine = self.tapes.quarantine
        inputs.tables["quarantine"] = spark.createDataFrame(
            quarantine if quarantine.num_rows else [], ddl(QUARANTINE_COLUMNS)
        )
        pending = [table for table in self._tables if table.name not in self._reused]
        for table in self._tables:
            if table.name in self._reused:
                inputs.tables[table.name] = self._read_frame(
                    inputs, table, self._results.table_path(table.name, self._reused[table.name])
                )
            else:
                self._progress.on_table(table.name, pending.index(table), len(pending))
                if table.is_cumulative and table.name in self._previous.tables:
                    path = self._results.table_path(table.name, self._previous.tables[table.name])
                    inputs.tables[table.name] = self._read_frame(inputs, table, path)
                inputs.tables[table.name] = self._build(inputs, table)
        seconds["tables"] = round(time.monotonic() - began - seconds["start"] - seconds["examine"], 3)
        return seconds

    def _build(self, inputs: TableInputs, table: Table) -> "DataFrame":
        began = time.monotonic()
        path = self._transaction.staging_path / table.name
        try:
            written = _write(table.build(inputs), path)
        except BroadloomError:
            raise
        except Exception as problem:
            raise BuildError(f"table {table.name} could not be built: {_first_line(problem)}") from problem
        rows, size = count_rows_and_bytes(path)
        if written is not None and rows < written:
            raise BuildError(
                f"the workers wrote {written:,} rows of table {table.name}, but only {rows:,} arrived at {path}: "
                f"--out must be a folder that all machines share under the same path"
            )
        seconds = round(time.monotonic() - began, 3)
        self.built[table.name] = TableBuild(
            self._transaction.build, self._fingerprints[table.name], rows, size, seconds
        )
        return self._read_frame(inputs, table, path)

    def _read_frame(self, inputs: TableInputs, table: Table, path: Path) -> "DataFrame":
        return inputs.spark.read.schema(table.ddl).parquet(_spark_path(path))


def fingerprints(
    tables: tuple[Table, ...], files: list[FileId], settings: Mapping[str, SettingValue]
) -> dict[str, str]:
    """Fingerprint of each table: of the tapes, the code, and its settings and those of its dependencies."""
    common = hashlib.sha256(repr((code_version(), files)).encode()).hexdigest()
    prints: dict[str, str] = {}
    for table in tables:
        own = [(each.name, _setting_identity(settings[each.name])) for each in table.settings]
        needs = [prints.get(name, "") for name in table.depends_on]
        prints[table.name] = hashlib.sha256(repr((common, table.name, own, needs)).encode()).hexdigest()[:32]
    return prints


@cache
def code_version() -> str:
    """Hash of all code that affects the content of tables."""
    here = Path(__file__).parent
    digest = hashlib.sha256(__version__.encode())
    for folder in (here, here.parent / "record"):
        for path in sorted(folder.rglob("*.py")):
            if path.relative_to(here.parent).parts[1] not in _NOT_FINGERPRINTED:
                digest.update(path.relative_to(here.parent).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def _setting_identity(value: SettingValue) -> object:
    """A setting that names a file stands for the content of the file."""
    if isinstance(value, str) and value and Path(value).is_file():
        return value, hashlib.sha256(Path(value).read_bytes()).hexdigest()
    return value


def _write(frame: "DataFrame", path: Path) -> int | None:
    """On a cluster, returns the number of rows the workers wrote: without a shared folder they do not arrive here."""
    if is_embedded(str(frame.sparkSession.sparkContext.master)):
        frame.write.parquet(_spark_path(path))
        return None
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    written = Observation()
    frame.observe(written, F.count(F.lit(1)).alias("row_count")).write.parquet(_spark_path(path))
    return int(written.get["row_count"])


def _spark_path(path: Path) -> str:
    return "file://" + path.absolute().as_posix()


def _first_line(problem: Exception) -> str:
    lines = [line.removeprefix(": ").removeprefix("Caused by: ") for line in str(problem).splitlines() if line.strip()]
    # py4j and Spark wrap the exception in lines that say nothing; the cause follows.
    noise = (
        "An error occurred while calling",
        "org.apache.spark.SparkException: Exception thrown in awaitResult",
        "\tat ",
    )
    lines = [line for line in lines if not line.startswith(noise)]
    return lines[0] if lines else repr(problem)
