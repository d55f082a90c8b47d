"""Terminal output of `broadloom pipeline`: progress, rows, build and audit summaries."""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broadloom.cli.exit_codes import UsageError
from broadloom.cli.formatting import to_json
from broadloom.cli.output import ProgressBar, console

if TYPE_CHECKING:
    import polars as pl

    from broadloom.pipeline.build import BuildResult


class BuildProgress(ProgressBar):
    """Implements `ProgressListener` of a build."""

    def on_phase(self, text: str) -> None:
        self.phase(text)


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Set an event on SIGINT or SIGTERM, so that the current batch is completed; a second signal interrupts it.

    Enter this after Spark has started: Spark installs a handler of its own, which would abort the batch.
    """
    stopping = threading.Event()

    def on_signal(_number: int, _frame: object) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def select_rows(rows: "pl.LazyFrame", where: str, columns: str, limit: int | None) -> "pl.DataFrame":
    import polars as pl

    names = ", ".join(rows.collect_schema().names())
    try:
        if where:
            rows = rows.filter(pl.sql_expr(where))
        if columns:
            rows = rows.select([name.strip() for name in columns.split(",")])
        return (rows if limit is None else rows.head(limit)).collect()
    except (pl.exceptions.PolarsError, ValueError) as problem:
        reason = str(problem).splitlines()[0].partition("; valid columns")[0]
        raise UsageError(f"cannot select rows: {reason}; columns are: {names}") from problem


def unnest(frame: "pl.DataFrame") -> "pl.DataFrame":
    """Nested columns as JSON text, because CSV has no lists."""
    import polars as pl

    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    return frame.with_columns(
        [pl.Series(name, [to_json(each) for each in frame[name].to_list()], pl.String) for name in nested]
    )


def print_rows(title: str, names: list[str], rows: Iterable[tuple[Any, ...]]) -> None:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(_text(each) for each in row))
    console().print(table)


def build_summary(result: "BuildResult", seconds: float) -> dict[str, Any]:
    manifest = result.manifest
    return {
        "tapes": manifest.tapes,
        "tables": {name: {"rows": each.rows, "seconds": each.seconds} for name, each in manifest.tables.items()},
        "built": result.built,
        "reused": result.reused,
        "start_s": manifest.seconds.get("start", 0.0) if result.built else 0.0,
        "total_s": round(seconds, 3),
    }


def print_build(result: "BuildResult", out: Path, seconds: float) -> None:
    tables, tapes = result.manifest.tables, result.manifest.tapes
    rows = (
        (name, f"{each.rows:,}", f"{each.seconds:.1f}" if name in result.built else "unchanged")
        for name, each in tables.items()
        if name in result.built or name in result.reused
    )
    print_rows(f"Results in {out}", ["table", "rows", "seconds"], rows)
    print(f"{tapes['rows']:,} events in {tapes['files_used']:,} files ({_timing(result, seconds)})")
    if tapes["quarantined"]:
        print(f"{tapes['quarantined']:,} files are in quarantine: broadloom pipeline show quarantine --out {out}")


def print_audit(
    summaries: "pl.DataFrame",
    violations: "pl.DataFrame",
    quarantine: "pl.DataFrame",
    limit: int,
    result: "BuildResult",
    seconds: float,
) -> None:
    for summary in summaries.iter_rows(named=True):
        figures = (
            f"{summary['message_count']:,} messages, {summary['peer_count']:,} peers, "
            f"{summary['due_count']:,} deliveries due, {summary['delivered_count']:,} delivered, "
            f"{summary['reported_missed_count']:,} reported missed"
        )
        print(f"channel {summary['channel']}: {'passed' if summary['has_passed'] else 'VIOLATIONS'}: {figures}")
        if summary["notes"]:
            print(f"  not judged: {summary['notes']}")
    if violations.height:
        shown = ["finding", "channel", "author", "sequence", "receiver", "event_time", "detail"]
        print_rows(f"Violations (at most {limit})", shown, violations.select(shown).iter_rows())
    if quarantine.height:
        shown = ["file_path", "row_count", "reason", "detail"]
        print_rows("Quarantine", shown, quarantine.select(shown).iter_rows())
    if not summaries.height:
        conclusion = "nothing could be judged"
    else:
        conclusion = "every guarantee held" if bool(summaries["has_passed"].all()) else "a guarantee was violated"
    print(f"{conclusion} ({_timing(result, seconds)})")


def _timing(result: "BuildResult", seconds: float) -> str:
    if not result.built:
        return f"unchanged; {seconds:.1f} s"
    return f"{seconds:.1f} s, of which {result.manifest.seconds.get('start', 0.0):.1f} s to start Spark"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S.%f}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return to_json(value) if isinstance(value, list | dict) else str(value)
