"""A run: tapes in, tables out. What has not changed is not built again.

The rule: a table is known by a fingerprint of the tapes, the settings and the code that it is made from. If the results
have one with the same, it stays; if all stay, Spark is not even started.
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
"""Of tapes, about a million events: below that, starting up is most of the work."""

_NOT_FINGERPRINTED = {
    "command.py",
    "live",
    "overlay_study",
    "plot.py",
    "reference.py",
    "sidecar.py",
    "sidecar_client.py",
    "spark_source",
    "synthetic",
}
"""Parts of the pipeline that decide nothing about what is in a table of a run."""


class BuildError(BroadloomError):
    """A table could not be built; the former results are as they were."""


class ProgressListener(Protocol):
    """Whoever shows how far a run is."""

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
    """Tables that were there already, from the same tapes, settings and code."""


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
    """Build all tables, or `only` these with those they need.

    `spark` is a session to use; otherwise one is started, and left running for the caller to stop.
    """
    began = time.monotonic()
    progress = progress or NoProgress()
    tables = with_dependencies(only) if only else all_tables()
    chosen = resolve_settings(all_tables(), settings or {})
    folder, results = Path(tapes), Results(out)
    found = file_ids(folder)
    if not found:
        raise TapesNotFoundError(f"there are no tapes in {folder}")
    with results.transaction() as writing:
        former = results.manifest()
        prints = fingerprints(tables, found, chosen)
        kept = {
            name: former.tables[name]
            for name in prints
            if name in former.tables
            # What was of the future then may be of the past by now.
            and not former.tapes.get("future_rows")
            and former.tables[name].fingerprint == prints[name]
            and results.table_path(name, former.tables[name]).is_dir()
        }
        outcome = BuildResult(former, [], list(kept))
        if len(kept) == len(tables):
            return outcome
        run_of = _Build(folder, results, writing, tables, kept, prints, chosen, progress, former)
        seconds = run_of.run(spark, master, memory, sum(each[1] for each in found))
        told = run_of.tapes
        assert told is not None
        # Tables of other tapes, settings or code would contradict the new ones, so only those that still hold stay.
        others = fingerprints(all_tables(), found, chosen)
        lasting = {table.name for table in all_tables() if table.is_cumulative}
        valid = {
            name: each
            for name, each in former.tables.items()
            if others.get(name) == each.fingerprint or name in lasting
        }
        outcome.manifest = ResultsManifest(
            {**valid, **kept, **run_of.built},
            {
                "folder": str(folder.absolute()),
                "files": len(told.files),
                "files_used": len(told.used),
                "rows": told.rows,
                "bytes": told.bytes,
                "set_aside": told.quarantine.num_rows,
                "future_rows": sum(each.future_rows for each in told.files),
            },
            dict(chosen),
            {**seconds, "total": round(time.monotonic() - began, 3)},
        )
        writing.commit(outcome.manifest)
        outcome.built = list(run_of.built)
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
        """Returns what took how long."""
        began = time.monotonic()
        seconds: dict[str, float] = {}
        with ThreadPoolExecutor(1) as aside:
            # While Spark starts, the files are looked at.
            few = len(file_ids(self._folder)) <= LOCAL_FILES_MAX
            looked = aside.submit(examine_tapes, self._folder) if few and master is None else None
            if spark is None:
                self._progress.on_phase("starting Spark")
                spark = session(master, name="broadloom pipeline", memory=memory, quick=tape_bytes < QUICK_BYTES)
            seconds["start"] = round(time.monotonic() - began, 3)
            self._progress.on_phase("examining the tapes")
            try:
                self.tapes = looked.result() if looked is not None else examine_tapes(self._folder, spark=spark)
            except BroadloomError:
                raise
            except Exception as problem:
                raise BuildError(f"the tapes could not be examined: {_first_line(problem)}") from problem
        seconds["examine"] = round(time.monotonic() - began - seconds["start"], 3)
        inputs = TableInputs(spark, events(spark, self.tapes), self._settings, rows=self.tapes.rows)
        aside_rows = self.tapes.quarantine
        inputs.tables["quarantine"] = (
            spark.createDataFrame(aside_rows, ddl(QUARANTINE_COLUMNS))
            if aside_rows.num_rows
            else spark.createDataFrame([], ddl(QUARANTINE_COLUMNS))
        )
        waiting = [table for table in self._tables if table.name not in self._reused]
        for table in self._tables:
            if table.name in self._reused:
                inputs.tables[table.name] = self._read_frame(
                    inputs, table, self._results.table_path(table.name, self._reused[table.name])
                )
            else:
                self._progress.on_table(table.name, waiting.index(table), len(waiting))
                if table.is_cumulative and table.name in self._previous.tables:
                    place = self._results.table_path(table.name, self._previous.tables[table.name])
                    inputs.tables[table.name] = self._read_frame(inputs, table, place)
                inputs.tables[table.name] = self._build(inputs, table)
        seconds["tables"] = round(time.monotonic() - began - seconds["start"] - seconds["examine"], 3)
        return seconds

    def _build(self, inputs: TableInputs, table: Table) -> "DataFrame":
        began = time.monotonic()
        place = self._transaction.staging_path / table.name
        try:
            sent = _write(table.build(inputs), place)
        except BroadloomError:
            raise
        except Exception as problem:
            raise BuildError(f"the table {table.name} could not be built: {_first_line(problem)}") from problem
        rows, size = count_rows_and_bytes(place)
        if sent is not None and rows < sent:
            raise BuildError(
                f"the workers wrote {sent:,} rows of the table {table.name}, but only {rows:,} have come to {place}: "
                f"--out has to be in a folder that all machines share, under the same path"
            )
        seconds = round(time.monotonic() - began, 3)
        self.built[table.name] = TableBuild(
            self._transaction.build, self._fingerprints[table.name], rows, size, seconds
        )
        return self._read_frame(inputs, table, place)

    def _read_frame(self, inputs: TableInputs, table: Table, place: Path) -> "DataFrame":
        return inputs.spark.read.schema(table.ddl).parquet(_spark_path(place))


def fingerprints(
    tables: tuple[Table, ...], files: list[FileId], settings: Mapping[str, SettingValue]
) -> dict[str, str]:
    """Of each table: of the tapes, the code, and the settings of it and of those that it is made from."""
    common = hashlib.sha256(repr((code_version(), files)).encode()).hexdigest()
    prints: dict[str, str] = {}
    for table in tables:
        own = [(each.name, _setting_identity(settings[each.name])) for each in table.settings]
        needs = [prints.get(name, "") for name in table.depends_on]
        prints[table.name] = hashlib.sha256(repr((common, table.name, own, needs)).encode()).hexdigest()[:32]
    return prints


@cache
def code_version() -> str:
    """Of all code that decides what is in a table."""
    here = Path(__file__).parent
    digest = hashlib.sha256(__version__.encode())
    for folder in (here, here.parent / "record"):
        for path in sorted(folder.rglob("*.py")):
            if path.relative_to(here.parent).parts[1] not in _NOT_FINGERPRINTED:
                digest.update(path.relative_to(here.parent).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def _setting_identity(value: SettingValue) -> object:
    """A setting that names a file stands for what is in the file."""
    if isinstance(value, str) and value and Path(value).is_file():
        return value, hashlib.sha256(Path(value).read_bytes()).hexdigest()
    return value


def _write(frame: "DataFrame", place: Path) -> int | None:
    """On a cluster it tells how many rows the workers wrote: if they do not share the folder, they come to nothing."""
    if is_embedded(str(frame.sparkSession.sparkContext.master)):
        frame.write.parquet(_spark_path(place))
        return None
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    told = Observation()
    frame.observe(told, F.count(F.lit(1)).alias("rows")).write.parquet(_spark_path(place))
    return int(told.get["rows"])


def _spark_path(path: Path) -> str:
    return "file://" + path.absolute().as_posix()


def _first_line(problem: Exception) -> str:
    lines = [line.removeprefix(": ").removeprefix("Caused by: ") for line in str(problem).splitlines() if line.strip()]
    # What Python called in Java, and who waited for it there, is of no use to anybody; what was thrown follows.
    idle = (
        "An error occurred while calling",
        "org.apache.spark.SparkException: Exception thrown in awaitResult",
        "\tat ",
    )
    lines = [line for line in lines if not line.startswith(idle)]
    return lines[0] if lines else repr(problem)
