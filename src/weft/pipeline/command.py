"""What `weft pipeline …` does: runs shown as they go, tables shown as people and programs like them, a verdict.

Nothing heavy is imported before it is needed, so that a mistake in the words is told at once.
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

from weft.errors import WeftError

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from weft.pipeline.job import Outcome

GUILTY_SHOWN_MAX = 20
FINE, BROKEN = 0, 1

_PARTS = ("pyarrow", "polars", "pyspark")


class WrongUse(WeftError):
    """Words that do not fit; the text says what would."""


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
    """Build the tables, or with `follow` keep the live ones up to date; returns the exit code."""
    needs_extra()
    if follow:
        from weft.pipeline.live import command as live

        if only:
            raise WrongUse("--follow keeps all live tables up to date: leave --only away")
        chosen = dict(_setting(each) for each in settings)
        return live.run(tapes, out, settings=chosen, master=master, memory=memory, json=json)
    outcome, seconds = _run(tapes, out, only, settings, master, memory)
    if json:
        _print_json({"out": str(out), **_told(outcome, seconds)})
        return FINE
    _show_outcome(outcome, out, seconds)
    return FINE


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
    """A table of the results, without Spark."""
    needs_extra("pyarrow", "polars")
    from weft.pipeline.results import Results
    from weft.pipeline.tables import table

    described = table(name)
    rows = Results(out).scan(described)
    frame = _chosen(rows, where, columns, limit)
    if json:
        for row in frame.iter_rows(named=True):
            _print_json(row)
    elif csv:
        sys.stdout.write(_flat(frame).write_csv())
    else:
        _show_rows(described.question, frame.columns, frame.iter_rows())
    return FINE


def plot(out: Path, to: Path, *, channel: str = "") -> int:
    """One picture of a channel, from the results, without Spark."""
    needs_extra("pyarrow", "polars", "matplotlib")
    from weft.pipeline.picture import draw

    print(f"{to}: channel {draw(out, to, channel)}")
    return FINE


def tables(*, json: bool = False) -> int:
    """Which tables there are, and what they answer."""
    needs_extra("pyarrow", "polars")
    from weft.pipeline.tables import all_tables

    if json:
        for each in all_tables():
            about = [{"name": column.name, "type": column.spark, "about": column.about} for column in each.columns]
            chosen = [{"name": one.name, "default": one.default, "about": one.about} for one in each.settings]
            _print_json({"table": each.name, "question": each.question, "columns": about, "settings": chosen})
    else:
        _show_rows("Tables", ["table", "question"], ((each.name, each.question) for each in all_tables()))
    return FINE


def audit(
    tapes: Path,
    out: Path | None,
    *,
    settings: list[str],
    master: str = "",
    memory: str = "",
    limit: int = GUILTY_SHOWN_MAX,
    json: bool = False,
) -> int:
    """0 only if every promise held on every channel."""
    needs_extra()
    if out is None:
        with tempfile.TemporaryDirectory(prefix="weft-audit-") as folder:
            return _audit(tapes, Path(folder), settings, master, memory, limit, json)
    return _audit(tapes, out, settings, master, memory, limit, json)


def needs_extra(*parts: str) -> None:
    for each in parts or _PARTS:
        if find_spec(each) is None:
            raise WrongUse(f"the pipeline needs {each}; it comes with: pip install 'weft[pipeline]'")


def _audit(tapes: Path, out: Path, settings: list[str], master: str, memory: str, limit: int, json: bool) -> int:
    import polars as pl

    from weft.pipeline.results import Results
    from weft.pipeline.tables import table

    outcome, seconds = _run(tapes, out, ["verdict"], settings, master, memory)
    results = Results(out)
    verdicts = results.scan(table("verdict")).collect()
    guilty = results.scan(table("audit")).filter(pl.col("guilty")).head(limit).collect()
    aside = results.scan(table("quarantine")).collect()
    clean = verdicts.height > 0 and bool(verdicts["clean"].all())
    if json:
        _print_json(
            {
                "clean": clean,
                "verdicts": verdicts.to_dicts(),
                "guilty": guilty.to_dicts(),
                "set_aside": aside.to_dicts(),
                **_told(outcome, seconds),
            }
        )
        return FINE if clean else BROKEN
    for verdict in verdicts.iter_rows(named=True):
        _show_verdict(verdict)
    if guilty.height:
        shown = ["finding", "channel", "author", "sequence", "receiver", "time", "detail"]
        _show_rows(f"Guilty (at most {limit})", shown, guilty.select(shown).iter_rows())
    if aside.height:
        shown = ["file", "rows", "reason", "detail"]
        _show_rows("Set aside", shown, aside.select(shown).iter_rows())
    broken = "a promise was broken" if verdicts.height else "nothing could be judged"
    print("every promise held" if clean else broken, f"({_timed(outcome, seconds)})")
    return FINE if clean else BROKEN


def _run(
    tapes: Path, out: Path, only: list[str], settings: list[str], master: str, memory: str
) -> tuple["Outcome", float]:
    from weft.pipeline import job
    from weft.pipeline.session import MEMORY, is_running, stop

    began = time.monotonic()
    chosen = dict(_setting(each) for each in settings)
    is_ours = not is_running()
    try:
        with _progress() as teller:
            outcome = job.run(
                tapes,
                out,
                only=only or None,
                settings=chosen,
                master=master or None,
                memory=memory or MEMORY,
                teller=teller,
            )
    finally:
        if is_ours:
            stop()
    return outcome, time.monotonic() - began


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise WrongUse(f"a setting is given as NAME=VALUE, not {text!r}")
    return name.strip(), value.strip()


def _chosen(rows: "pl.LazyFrame", where: str, columns: str, limit: int | None) -> "pl.DataFrame":
    import polars as pl

    there = ", ".join(rows.collect_schema().names())
    try:
        if where:
            rows = rows.filter(pl.sql_expr(where))
        if columns:
            rows = rows.select([name.strip() for name in columns.split(",")])
        return (rows if limit is None else rows.head(limit)).collect()
    except (pl.exceptions.PolarsError, ValueError) as problem:
        reason = str(problem).splitlines()[0].partition("; valid columns")[0]
        raise WrongUse(f"that cannot be shown: {reason}; columns are: {there}") from problem


def _flat(frame: "pl.DataFrame") -> "pl.DataFrame":
    """For CSV, which knows no lists: those as JSON."""
    import polars as pl

    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    texts = [
        pl.Series(name, [json_module.dumps(each, default=_plain) for each in frame[name].to_list()], pl.String)
        for name in nested
    ]
    return frame.with_columns(texts)


# -- telling


class _Bar:
    """The teller of a run, at a terminal."""

    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        self._progress = progress
        self._task = task

    def phase(self, text: str) -> None:
        self._progress.update(self._task, description=text)

    def table(self, name: str, number: int, of: int) -> None:
        self._progress.update(self._task, description=f"building {name}", completed=number, total=of)


@contextmanager
def _progress() -> Iterator[_Bar]:
    """On standard error, and only for a person who watches."""
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
        yield _Bar(progress, progress.add_task("starting", total=None))


def _told(outcome: "Outcome", seconds: float) -> dict[str, Any]:
    manifest = outcome.manifest
    return {
        "tapes": manifest.tapes,
        "tables": {name: {"rows": each.rows, "seconds": each.seconds} for name, each in manifest.tables.items()},
        "built": outcome.built,
        "kept": outcome.kept,
        "start_s": manifest.seconds.get("start", 0.0) if outcome.built else 0.0,
        "total_s": round(seconds, 3),
    }


def _timed(outcome: "Outcome", seconds: float) -> str:
    if not outcome.built:
        return f"nothing had changed; {seconds:.1f} s"
    return f"{seconds:.1f} s, of which {outcome.manifest.seconds.get('start', 0.0):.1f} s to start Spark"


def _show_outcome(outcome: "Outcome", out: Path, seconds: float) -> None:
    manifest = outcome.manifest
    names = [*outcome.built, *outcome.kept]
    rows = (
        (
            name,
            f"{manifest.tables[name].rows:,}",
            f"{manifest.tables[name].seconds:.1f}" if name in outcome.built else "kept",
        )
        for name in manifest.tables
        if name in names
    )
    _show_rows(f"Results in {out}", ["table", "rows", "seconds"], rows)
    told = manifest.tapes
    print(f"{told['rows']:,} events of {told['files_used']:,} files ({_timed(outcome, seconds)})")
    if told["set_aside"]:
        print(f"{told['set_aside']:,} files had to be set aside: weft pipeline show quarantine --out {out}")


def _show_verdict(verdict: dict[str, Any]) -> None:
    counts = ("messages", "members", "owed", "delivered", "missed_reported")
    told = ", ".join(f"{name.replace('_', ' ')} {verdict[name]:,}" for name in counts)
    print(f"channel {verdict['channel']}: {'clean' if verdict['clean'] else 'NOT clean'}: {told}")
    if verdict["remarks"]:
        print(f"  not judged: {verdict['remarks']}")


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

    # What goes into a file or a pipe is not cut to the width of a terminal that is not there.
    return Console() if sys.stdout.isatty() else Console(width=240)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S.%f}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | dict):
        return json_module.dumps(value, default=_plain)
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def _print_json(told: Any) -> None:
    print(json_module.dumps(told, default=_plain))
