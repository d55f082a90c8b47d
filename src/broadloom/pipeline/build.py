"""Incremental build: tapes in, tables out.

Each table has a fingerprint of the tapes, settings and code it is built from. A table with the same fingerprint is
reused; if all are, Spark is not even started.
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from broadloom import __version__
from broadloom.errors import BroadloomError
from broadloom.pipeline.analysis.frames import empty, frame
from broadloom.pipeline.billing.config import load as load_billing
from broadloom.pipeline.engine.distributed import run_distributed
from broadloom.pipeline.engine.events import FlawedFiles
from broadloom.pipeline.engine.parts import parts_of
from broadloom.pipeline.engine.scheduler import attempt, run_tasks
from broadloom.pipeline.engine.stages import Job, TableWriter, WrittenFile
from broadloom.pipeline.engine.whole import WHOLE_ROWS, run_whole
from broadloom.pipeline.results import Results, ResultsManifest, ResultsTransaction, TableBuild
from broadloom.pipeline.spark_errors import cause_of
from broadloom.pipeline.spark_session import DRIVER_MEMORY, JAVA_ENDED, context, has_java_ended
from broadloom.pipeline.table import SettingValue, Table, resolve_settings
from broadloom.pipeline.tables import all_tables, invoices, table, with_dependencies
from broadloom.pipeline.tables.invoices import BILLING_FILE
from broadloom.pipeline.tape_set import (
    LOCAL_FILES_MAX,
    FileId,
    TapeSet,
    TapesNotFoundError,
    examine_tapes,
    file_ids,
)

if TYPE_CHECKING:
    import polars as pl
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_NOT_FINGERPRINTED = {
    "compact.py",
    "contracts.py",
    "live",
    "overlay_study",
    "plot.py",
    "plot_panels.py",
    "sidecar.py",
    "sidecar_client.py",
    "spark_source",
    "sql.py",
}
"""Modules that do not affect the content of tables."""


class BuildError(BroadloomError):
    """A table could not be built. The previous results are unchanged."""


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
    on_phase: Callable[[str], None] = lambda _text: None,
    spark: "SparkSession | None" = None,
    keep_inputs: bool = True,
) -> BuildResult:
    """Build all tables, or `only` these and their dependencies, which are written too with `keep_inputs`.

    Without `spark`, a session is started and left running for the caller to stop.
    """
    began = time.monotonic()
    needed = with_dependencies(only) if only else all_tables()
    tables = needed if keep_inputs or not only else tuple(table(name) for name in only)
    chosen = resolve_settings(all_tables(), settings or {})
    folder, results = Path(tapes), Results(out)
    found = file_ids(folder)
    if not found:
        raise TapesNotFoundError(f"no tapes in {folder}")
    with results.transaction() as transaction:
        previous = results.manifest()
        every = fingerprints(needed, found, chosen)
        prints = {each.name: every[each.name] for each in tables}
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
        pending = [each.name for each in tables if each.name not in kept]
        build = _Build(folder, results, transaction, pending, prints, chosen, on_phase, previous)
        seconds = build.run(spark, master, memory)
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
                "quarantined": tape_set.quarantine.height,
                "future_rows": tape_set.future_rows,
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
        pending: list[str],
        fingerprints: dict[str, str],
        settings: dict[str, SettingValue],
        on_phase: Callable[[str], None],
        previous: ResultsManifest,
    ) -> None:
        self.tapes: TapeSet | None = None
        self.built: dict[str, TableBuild] = {}
        self._folder = folder
        self._results = results
        self._transaction = transaction
        self._pending = pending
        self._fingerprints = fingerprints
        self._settings = settings
        self._on_phase = on_phase
        self._previous = previous

    def run(self, spark: "SparkSession | None", master: str | None, memory: str) -> dict[str, float]:
        """Returns the seconds per phase."""
        began = time.monotonic()
        seconds: dict[str, float] = {}
        billing = load_billing(str(self._settings[BILLING_FILE.name]))
        with ThreadPoolExecutor(1) as executor:
            # The files are examined while Spark starts.
            few = len(file_ids(self._folder)) <= LOCAL_FILES_MAX
            examined = executor.submit(examine_tapes, self._folder) if few and master is None else None
            if spark is not None:
                running = spark.sparkContext
            else:
                self._on_phase("starting Spark")
                running = context(master, name="broadloom pipeline", memory=memory, quick=True)
            seconds["start"] = round(time.monotonic() - began, 3)
            self._on_phase("examining the tapes")
            try:
                self.tapes = examined.result() if examined is not None else examine_tapes(self._folder, spark=running)
            except BroadloomError:
                raise
            except Exception as problem:
                raise _build_error("the tapes could not be examined", problem) from problem
        seconds["examine"] = round(time.monotonic() - began - seconds["start"], 3)
        folder = self._folder.absolute()
        flawed = frozenset(f"{folder}/{each.path}" for each in self.tapes.used if each.excluded)
        job = Job(
            wanted=frozenset(each.name for each in with_dependencies(self._pending)),
            written=frozenset(self._pending),
            folder=str(self._transaction.staging_path.absolute()),
            settings=self._settings,
            billing=billing,
            quarantine=self.tapes.quarantine,
            flawed=FlawedFiles(flawed, self.tapes.latest) if flawed else None,
            previous_invoices=self._previous_rows(invoices.TABLE) if "invoices" in self._pending else None,
        )
        try:
            self._collect(job, self._run_job(job, running))
        except BroadloomError:
            raise
        except Exception as problem:
            raise _build_error("the tables could not be built", problem) from problem
        seconds["tables"] = round(time.monotonic() - began - seconds["start"] - seconds["examine"], 3)
        return seconds

    def _run_job(self, job: Job, spark: "SparkContext") -> list[WrittenFile]:
        assert self.tapes is not None
        cores = int(spark.defaultParallelism)
        folder = str(self._folder.absolute())
        if self.tapes.rows > WHOLE_ROWS:
            return run_distributed(job, spark, parts_of(folder, self.tapes.used, cores), self._on_phase)
        self._on_phase("building the tables")
        files: dict[str, tuple[str, ...]] = {}
        for part in parts_of(folder, self.tapes.used, 1):
            files[part.channel] = (*files.get(part.channel, ()), *part.files)
        if not files:
            return []
        (written,) = run_tasks(spark, partial(_whole_task, job), [files])
        return list(written)

    def _previous_rows(self, table: Table) -> "pl.DataFrame | None":
        return frame(self._results.read(table)) if table.name in self._previous.tables else None

    def _collect(self, job: Job, files: list[WrittenFile]) -> None:
        """Register the files that were returned by tasks; others are left over from failed attempts."""
        for name in self._pending:
            own = [each for each in files if each.table == name]
            if not own:
                writer = TableWriter(job, "none")
                writer.write(name, job.quarantine if name == "quarantine" else empty(table(name).schema))
                own = writer.files
            folder = Path(job.folder) / name
            for each in own:
                if not (folder / each.name).is_file():
                    raise BuildError(
                        f"a worker wrote {each.rows:,} rows of table {name}, but they did not arrive at {folder}: "
                        f"--out must be a directory that all machines share under the same path"
                    )
            self.built[name] = TableBuild(
                self._transaction.build,
                self._fingerprints[name],
                sum(each.rows for each in own),
                sum(each.bytes for each in own),
                round(sum(each.seconds for each in own), 3),
                sorted(each.name for each in own),
            )


def _whole_task(job: Job, files: dict[str, tuple[str, ...]]) -> list[WrittenFile]:
    return run_whole(job, files, attempt())


def fingerprints(
    tables: tuple[Table, ...], files: list[FileId], settings: Mapping[str, SettingValue]
) -> dict[str, str]:
    """Fingerprint of each table: of the tapes, the code, and its settings and those of its dependencies."""
    common = hashlib.sha256(repr((code_version(), files)).encode()).hexdigest()
    prints: dict[str, str] = {}
    for one in tables:
        own = [(each.name, _setting_identity(settings[each.name])) for each in one.settings]
        needs = [prints.get(name, "") for name in one.depends_on]
        prints[one.name] = hashlib.sha256(repr((common, one.name, own, needs)).encode()).hexdigest()[:32]
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


def _build_error(what: str, problem: Exception) -> BuildError:
    return BuildError(f"{what}: {JAVA_ENDED if has_java_ended() else cause_of(problem)}")
