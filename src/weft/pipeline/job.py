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

from weft import __version__
from weft.errors import WeftError
from weft.pipeline.quarantine import QUARANTINE_COLUMNS
from weft.pipeline.results import Built, Manifest, Results, Writing, measured
from weft.pipeline.session import MEMORY, is_embedded, session
from weft.pipeline.table import Inputs, Table, Value, ddl, resolved
from weft.pipeline.tables import all_tables, with_needs
from weft.pipeline.tapes import FILES_HERE_MAX, FileId, NoTapes, Tapes, events, examined, file_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK_BYTES = 8 << 20
"""Of tapes, about a million events: below that, starting up is most of the work."""

_WITHOUT_SAY = {"command.py", "follow.py", "live", "made", "picture.py", "reference.py", "source", "study"}
"""Parts of the pipeline that decide nothing about what is in a table of a run."""


class JobFailed(WeftError):
    """A table could not be built; the former results are as they were."""


class Teller(Protocol):
    """Whoever shows how far a run is."""

    def phase(self, text: str) -> None: ...

    def table(self, name: str, number: int, of: int) -> None: ...


class Silent:
    def phase(self, text: str) -> None:
        pass

    def table(self, name: str, number: int, of: int) -> None:
        pass


@dataclass(slots=True)
class Outcome:
    manifest: Manifest
    built: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Tables that were there already, from the same tapes, settings and code."""


def run(
    tapes: Path | str,
    out: Path | str,
    *,
    only: list[str] | None = None,
    settings: Mapping[str, str] | None = None,
    master: str | None = None,
    memory: str = MEMORY,
    teller: Teller | None = None,
    spark: "SparkSession | None" = None,
) -> Outcome:
    """Build all tables, or `only` these with those they need.

    `spark` is a session to use; otherwise one is started, and left running for the caller to stop.
    """
    began = time.monotonic()
    teller = teller or Silent()
    tables = with_needs(only) if only else all_tables()
    chosen = resolved(all_tables(), settings or {})
    folder, results = Path(tapes), Results(out)
    found = file_ids(folder)
    if not found:
        raise NoTapes(f"there are no tapes in {folder}")
    with results.writing() as writing:
        former = results.manifest()
        prints = fingerprints(tables, found, chosen)
        kept = {
            name: former.tables[name]
            for name in prints
            if name in former.tables
            # What was of the future then may be of the past by now.
            and not former.tapes.get("future_rows")
            and former.tables[name].fingerprint == prints[name]
            and results.place(name, former.tables[name]).is_dir()
        }
        outcome = Outcome(former, [], list(kept))
        if len(kept) == len(tables):
            return outcome
        run_of = _Run(folder, results, writing, tables, kept, prints, chosen, teller, former)
        seconds = run_of.work(spark, master, memory, sum(each[1] for each in found))
        told = run_of.tapes
        assert told is not None
        # Tables of other tapes, settings or code would contradict the new ones, so only those that still hold stay.
        others = fingerprints(all_tables(), found, chosen)
        lasting = {table.name for table in all_tables() if table.lasting}
        valid = {
            name: each
            for name, each in former.tables.items()
            if others.get(name) == each.fingerprint or name in lasting
        }
        outcome.manifest = Manifest(
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


class _Run:
    def __init__(
        self,
        folder: Path,
        results: Results,
        writing: Writing,
        tables: tuple[Table, ...],
        kept: dict[str, Built],
        prints: dict[str, str],
        settings: dict[str, Value],
        teller: Teller,
        former: Manifest,
    ) -> None:
        self.tapes: Tapes | None = None
        self.built: dict[str, Built] = {}
        self._folder = folder
        self._results = results
        self._writing = writing
        self._tables = tables
        self._kept = kept
        self._prints = prints
        self._settings = settings
        self._teller = teller
        self._former = former

    def work(self, spark: "SparkSession | None", master: str | None, memory: str, tape_bytes: int) -> dict[str, float]:
        """Returns what took how long."""
        began = time.monotonic()
        seconds: dict[str, float] = {}
        with ThreadPoolExecutor(1) as aside:
            # While Spark starts, the files are looked at.
            few = len(file_ids(self._folder)) <= FILES_HERE_MAX
            looked = aside.submit(examined, self._folder) if few and master is None else None
            if spark is None:
                self._teller.phase("starting Spark")
                spark = session(master, name="weft pipeline", memory=memory, quick=tape_bytes < QUICK_BYTES)
            seconds["start"] = round(time.monotonic() - began, 3)
            self._teller.phase("examining the tapes")
            try:
                self.tapes = looked.result() if looked is not None else examined(self._folder, spark=spark)
            except WeftError:
                raise
            except Exception as problem:
                raise JobFailed(f"the tapes could not be examined: {_first_line(problem)}") from problem
        seconds["examine"] = round(time.monotonic() - began - seconds["start"], 3)
        inputs = Inputs(spark, events(spark, self.tapes), self._settings, rows=self.tapes.rows)
        aside_rows = self.tapes.quarantine
        inputs.tables["quarantine"] = (
            spark.createDataFrame(aside_rows, ddl(QUARANTINE_COLUMNS))
            if aside_rows.num_rows
            else spark.createDataFrame([], ddl(QUARANTINE_COLUMNS))
        )
        waiting = [table for table in self._tables if table.name not in self._kept]
        for table in self._tables:
            if table.name in self._kept:
                inputs.tables[table.name] = self._frame(
                    inputs, table, self._results.place(table.name, self._kept[table.name])
                )
            else:
                self._teller.table(table.name, waiting.index(table), len(waiting))
                if table.lasting and table.name in self._former.tables:
                    place = self._results.place(table.name, self._former.tables[table.name])
                    inputs.tables[table.name] = self._frame(inputs, table, place)
                inputs.tables[table.name] = self._build(inputs, table)
        seconds["tables"] = round(time.monotonic() - began - seconds["start"] - seconds["examine"], 3)
        return seconds

    def _build(self, inputs: Inputs, table: Table) -> "DataFrame":
        began = time.monotonic()
        place = self._writing.place / table.name
        try:
            sent = _write(table.build(inputs), place)
        except WeftError:
            raise
        except Exception as problem:
            raise JobFailed(f"the table {table.name} could not be built: {_first_line(problem)}") from problem
        rows, size = measured(place)
        if sent is not None and rows < sent:
            raise JobFailed(
                f"the workers wrote {sent:,} rows of the table {table.name}, but only {rows:,} have come to {place}: "
                f"--out has to be in a folder that all machines share, under the same path"
            )
        seconds = round(time.monotonic() - began, 3)
        self.built[table.name] = Built(self._writing.build, self._prints[table.name], rows, size, seconds)
        return self._frame(inputs, table, place)

    def _frame(self, inputs: Inputs, table: Table, place: Path) -> "DataFrame":
        return inputs.spark.read.schema(table.ddl).parquet(_spark_path(place))


def fingerprints(tables: tuple[Table, ...], files: list[FileId], settings: Mapping[str, Value]) -> dict[str, str]:
    """Of each table: of the tapes, the code, and the settings of it and of those that it is made from."""
    common = hashlib.sha256(repr((code_version(), files)).encode()).hexdigest()
    prints: dict[str, str] = {}
    for table in tables:
        own = [(each.name, _weight(settings[each.name])) for each in table.settings]
        needs = [prints.get(name, "") for name in table.needs]
        prints[table.name] = hashlib.sha256(repr((common, table.name, own, needs)).encode()).hexdigest()[:32]
    return prints


@cache
def code_version() -> str:
    """Of all code that decides what is in a table."""
    here = Path(__file__).parent
    digest = hashlib.sha256(__version__.encode())
    for folder in (here, here.parent / "record"):
        for path in sorted(folder.rglob("*.py")):
            if path.relative_to(here.parent).parts[1] not in _WITHOUT_SAY:
                digest.update(path.relative_to(here.parent).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def _weight(value: Value) -> object:
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
