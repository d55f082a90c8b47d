"""Implementation of `broadloom pipeline`: build with progress, show tables, plot, audit.

Heavy imports are deferred, so that usage errors are reported at once.
"""

import json as json_module
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from broadloom.pipeline.build import BuildResult

VIOLATIONS_SHOWN_MAX = 20
EXIT_OK, EXIT_FAILED = 0, 1

_REQUIRED_PACKAGES = ("pyarrow", "polars", "pyspark")


class UsageError(BroadloomError):
    """The arguments are invalid. The message says what is valid."""


def run(
    tapes: Path,
    out: Path,
    *,
    only: list[str],
    settings: list[str],
    follow: bool = False,
    master: str = "",
    memory: str = "",
    json: bool = False,
) -> int:
    """Build the tables, or with `follow` keep the live tables up to date. Returns the exit code."""
    require_extra()
    if follow:
        from broadloom.pipeline.live import command as live

        if only:
            raise UsageError("--follow keeps all live tables up to date; remove --only")
        chosen = dict(_parse_setting(each) for each in settings)
        return live.run(tapes, out, settings=chosen, master=master, memory=memory, json=json)
    outcome, seconds = _run(tapes, out, only, settings, master, memory)
    if json:
        _print_json({"out": str(out), **_build_summary(outcome, seconds)})
        return EXIT_OK
    _show_build(outcome, out, seconds)
    return EXIT_OK


def show(
    name: str,
    out: Path,
    *,
    limit: int | None,
    where: str = "",
    columns: str = "",
    json: bool = False,
    csv: bool = False,
) -> int:
    """Print a table of the results, without Spark."""
    require_extra("pyarrow", "polars")
    from broadloom.pipeline.results import Results
    from broadloom.pipeline.tables import table

    described = table(name)
    rows = Results(out).scan(described)
    frame = _select_rows(rows, where, columns, limit)
    if json:
        for row in frame.iter_rows(named=True):
            _print_json(row)
    elif csv:
        sys.stdout.write(_without_nesting(frame).write_csv())
    else:
        _show_rows(described.question, frame.columns, frame.iter_rows())
    return EXIT_OK


def plot(out: Path, image: Path, *, channel: str = "") -> int:
    """Write an image of a channel from the results, without Spark."""
    require_extra("pyarrow", "polars", "matplotlib")
    from broadloom.pipeline.plot import plot_channel

    print(f"{image}: channel {plot_channel(out, image, channel)}")
    return EXIT_OK


def tables(*, json: bool = False) -> int:
    """List the tables and their questions."""
    require_extra("pyarrow", "polars")
    from broadloom.pipeline.tables import all_tables

    if json:
        for each in all_tables():
            about = [{"name": column.name, "type": column.spark, "about": column.about} for column in each.columns]
            chosen = [{"name": one.name, "default": one.default, "about": one.about} for one in each.settings]
            _print_json({"table": each.name, "question": each.question, "columns": about, "settings": chosen})
    else:
        _show_rows("Tables", ["table", "question"], ((each.name, each.question) for each in all_tables()))
    return EXIT_OK


def audit(
    tapes: Path,
    out: Path | None,
    *,
    settings: list[str],
    master: str = "",
    memory: str = "",
    limit: int = VIOLATIONS_SHOWN_MAX,
    json: bool = False,
) -> int:
    """Exit code 0 only if every guarantee held on every channel."""
    require_extra()
    if out is None:
        with tempfile.TemporaryDirectory(prefix="broadloom-audit-") as folder:
            return _audit(tapes, Path(folder), settings, master, memory, limit, json)
    return _audit(tapes, out, settings, master, memory, limit, json)


def require_extra(*packages: str) -> None:
    for each in packages or _REQUIRED_PACKAGES:
        if find_spec(each) is None:
            raise UsageError(f"the pipeline needs {each}: pip install 'broadloom[pipeline]'")


def _audit(tapes: Path, out: Path, settings: list[str], master: str, memory: str, limit: int, json: bool) -> int:
    import polars as pl

    from broadloom.pipeline.results import Results
    from broadloom.pipeline.tables import table

    outcome, seconds = _run(tapes, out, ["audit_summary"], settings, master, memory)
    results = Results(out)
    summaries = results.scan(table("audit_summary")).collect()
    violations = results.scan(table("audit_findings")).filter(pl.col("is_violation")).head(limit).collect()
    quarantine = results.scan(table("quarantine")).collect()
    has_passed = summaries.height > 0 and bool(summaries["has_passed"].all())
    if json:
        _print_json(
            {
                "has_passed": has_passed,
                "audit_summary": summaries.to_dicts(),
                "violations": violations.to_dicts(),
                "quarantine": quarantine.to_dicts(),
                **_build_summary(outcome, seconds),
            }
        )
        return EXIT_OK if has_passed else EXIT_FAILED
    for summary in summaries.iter_rows(named=True):
        _show_audit_summary(summary)
    if violations.height:
        shown = ["finding", "channel", "author", "sequence", "receiver", "event_time", "detail"]
        _show_rows(f"Violations (at most {limit})", shown, violations.select(shown).iter_rows())
    if quarantine.height:
        shown = ["file_path", "row_count", "reason", "detail"]
        _show_rows("Quarantine", shown, quarantine.select(shown).iter_rows())
    failure = "a guarantee was violated" if summaries.height else "nothing could be judged"
    print("every guarantee held" if has_passed else failure, f"({_timed(outcome, seconds)})")
    return EXIT_OK if has_passed else EXIT_FAILED


def _run(
    tapes: Path, out: Path, only: list[str], settings: list[str], master: str, memory: str
) -> tuple["BuildResult", float]:
    from broadloom.pipeline import build
    from broadloom.pipeline.spark_session import DRIVER_MEMORY, is_running, stop

    began = time.monotonic()
    chosen = dict(_parse_setting(each) for each in settings)
    is_ours = not is_running()
    try:
        with _progress() as progress:
            outcome = build.build_tables(
                tapes,
                out,
                only=only or None,
                settings=chosen,
                master=master or None,
                memory=memory or DRIVER_MEMORY,
                progress=progress,
            )
    finally:
        if is_ours:
            stop()
    return outcome, time.monotonic() - began


def _parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"a setting must be NAME=VALUE, not {text!r}")
    return name.strip(), value.strip()


def _select_rows(rows: "pl.LazyFrame", where: str, columns: str, limit: int | None) -> "pl.DataFrame":
    import polars as pl

    known = ", ".join(rows.collect_schema().names())
    try:
        if where:
            rows = rows.filter(pl.sql_expr(where))
        if columns:
            rows = rows.select([name.strip() for name in columns.split(",")])
        return (rows if limit is None else rows.head(limit)).collect()
    except (pl.exceptions.PolarsError, ValueError) as problem:
        reason = str(problem).splitlines()[0].partition("; valid columns")[0]
        raise UsageError(f"invalid query: {reason}; columns: {known}") from problem


def _without_nesting(frame: "pl.DataFrame") -> "pl.DataFrame":
    """For CSV: nested columns become JSON."""
    import polars as pl

    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    texts = [
        pl.Series(name, [json_module.dumps(each, default=_json_default) for each in frame[name].to_list()], pl.String)
        for name in nested
    ]
    return frame.with_columns(texts)


# -- output


class _ProgressBar:
    """Shows the progress of a build in a terminal."""

    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        self._progress = progress
        self._task = task

    def on_phase(self, text: str) -> None:
        self._progress.update(self._task, description=text)

    def on_table(self, name: str, index: int, total: int) -> None:
        self._progress.update(self._task, description=f"building {name}", completed=index, total=total)


@contextmanager
def _progress() -> Iterator[_ProgressBar]:
    """On standard error, and only if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield _ProgressBar(progress, progress.add_task("starting", total=None))


def _build_summary(result: "BuildResult", seconds: float) -> dict[str, Any]:
    manifest = result.manifest
    return {
        "tapes": manifest.tapes,
        "tables": {name: {"rows": each.rows, "seconds": each.seconds} for name, each in manifest.tables.items()},
        "built": result.built,
        "reused": result.reused,
        "start_s": manifest.seconds.get("start", 0.0) if result.built else 0.0,
        "total_s": round(seconds, 3),
    }


def _timed(result: "BuildResult", seconds: float) -> str:
    if not result.built:
        return f"nothing changed; {seconds:.1f} s"
    return f"{seconds:.1f} s, of which {result.manifest.seconds.get('start', 0.0):.1f} s to start Spark"


def _show_build(result: "BuildResult", out: Path, seconds: float) -> None:
    manifest = result.manifest
    names = [*result.built, *result.reused]
    rows = (
        (
            name,
            f"{manifest.tables[name].rows:,}",
            f"{manifest.tables[name].seconds:.1f}" if name in result.built else "reused",
        )
        for name in manifest.tables
        if name in names
    )
    _show_rows(f"Results in {out}", ["table", "rows", "seconds"], rows)
    tapes = manifest.tapes
    print(f"{tapes['rows']:,} events in {tapes['files_used']:,} files ({_timed(result, seconds)})")
    if tapes["quarantined"]:
        print(f"{tapes['quarantined']:,} files are quarantined: broadloom pipeline show quarantine --out {out}")


def _show_audit_summary(summary: dict[str, Any]) -> None:
    counts = (
        f"{summary['message_count']:,} messages, {summary['peer_count']:,} peers, "
        f"{summary['due_count']:,} deliveries due, {summary['delivered_count']:,} delivered, "
        f"{summary['reported_missed_count']:,} reported missed"
    )
    print(f"channel {summary['channel']}: {'passed' if summary['has_passed'] else 'FAILED'}: {counts}")
    if summary["notes"]:
        print(f"  not judged: {summary['notes']}")


def _show_rows(title: str, names: list[str], rows: Iterable[tuple[Any, ...]]) -> None:
    from rich.table import Table as Grid

    console = _console()
    grid = Grid(title=title, title_justify="left")
    for name in names:
        grid.add_column(name, overflow="fold")
    for row in rows:
        grid.add_row(*(_text(each) for each in row))
    console.print(grid)


def _console() -> "Console":
    from rich.console import Console

    # Output to a file or pipe is not cut to the width of a terminal.
    return Console() if sys.stdout.isatty() else Console(width=240)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S.%f}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | dict):
        return json_module.dumps(value, default=_json_default)
    return str(value)


def _json_default(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def _print_json(value: Any) -> None:
    print(json_module.dumps(value, default=_json_default))
