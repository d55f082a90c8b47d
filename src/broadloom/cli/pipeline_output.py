"""Terminal output of `broadloom pipeline`: progress, rows, build and audit summaries."""

import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broadloom.cli.exit_codes import UsageError
from broadloom.cli.formatting import escape_control_chars, format_count, to_json
from broadloom.cli.output import ProgressBar, console, print_json

if TYPE_CHECKING:
    import polars as pl

    from broadloom.pipeline.build import BuildResult
    from broadloom.record.arrow_import import pa

WIDTH_MAX = 100_000
"""Characters of a row, when its width is measured."""


class BuildProgress(ProgressBar):
    """The phases of a build. Without a terminal, each is a line with the time so far."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._began = time.monotonic()

    def on_phase(self, text: str) -> None:
        if sys.stderr.isatty():
            self.phase(text)
        else:
            print(f"{time.monotonic() - self._began:6.1f} s  {text}", file=sys.stderr, flush=True)


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


def csv_text(frame: "pl.DataFrame") -> str:
    """Nested columns as JSON text, because CSV has no lists. At a terminal, control characters are escaped."""
    import polars as pl

    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    texts = [name for name, kind in frame.schema.items() if kind == pl.String] if sys.stdout.isatty() else []
    return frame.with_columns(
        *(pl.Series(name, [to_json(each) for each in frame[name].to_list()], pl.String) for name in nested),
        *(pl.col(name).map_elements(escape_control_chars, pl.String) for name in texts),
    ).write_csv()


def print_frame(title: str, rows: "pl.DataFrame | pa.Table", *, json: bool = False, csv: bool = False) -> None:
    """Rows as a table, as JSON lines or as CSV."""
    import polars as pl

    frame = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(rows)
    if json:
        for row in frame.iter_rows(named=True):
            print_json(row)
    elif csv:
        sys.stdout.write(csv_text(frame))
    elif frame.columns:
        print_rows(title, frame.columns, frame.iter_rows())


def print_rows(title: str, names: list[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Rows of a table; a single one that is too wide, as a list of its columns.

    What comes from a tape is neither obeyed by the terminal nor read as markup.
    """
    from rich.table import Table
    from rich.text import Text

    out = console()
    listed = [[Text(escape_control_chars(_text(each))) for each in row] for row in rows]
    table = Table(title=Text(title) if title else None, title_justify="left")
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for row in listed:
        table.add_row(*row)
    if len(listed) == 1 and out.measure(table, options=out.options.update(width=WIDTH_MAX)).maximum > out.width:
        table = Table(title=table.title, title_justify="left", show_header=False)
        for name, value in zip(names, listed[0], strict=True):
            table.add_row(Text(name), value)
    out.print(table)


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
    events, files = format_count(tapes["rows"], "event"), format_count(tapes["files_used"], "file")
    print(f"{events} in {files} ({_timing(result, seconds)})")
    if tapes["quarantined"]:
        excluded = format_count(tapes["quarantined"], "file")
        print(f"{excluded} in quarantine: broadloom pipeline show quarantine --out {out}")


def print_audit(
    verdict: str,
    summaries: "pl.DataFrame",
    violations: "pl.DataFrame",
    quarantine: "pl.DataFrame",
    limit: int,
    result: "BuildResult",
    seconds: float,
) -> None:
    for summary in summaries.iter_rows(named=True):
        figures = (
            f"{format_count(summary['message_count'], 'message')}, {format_count(summary['peer_count'], 'peer')}, "
            f"{summary['due_count']:,} deliveries due, {summary['delivered_count']:,} delivered, "
            f"{summary['reported_missed_count']:,} reported missed"
        )
        print(f"channel {summary['channel']}: {summary['verdict']}: {figures}")
        if summary["waits_for"]:
            print(f"  at {_text(summary['verdict_time'])}: {escape_control_chars(summary['waits_for'])}")
        if summary["notes"]:
            print(f"  not judged: {escape_control_chars(summary['notes'])}")
    counts = finding_counts(summaries)
    if counts:
        print_rows("Findings", ["finding", "count"], ((name, f"{count:,}") for name, count in counts.items()))
    if violations.height:
        shown = ["finding", "channel", "author", "sequence", "receiver", "event_time", "detail"]
        print_rows(f"Violations (at most {limit})", shown, violations.select(shown).iter_rows())
    if quarantine.height:
        shown = ["file_path", "row_count", "reason", "detail"]
        print_rows("Quarantine", shown, quarantine.select(shown).iter_rows())
    print(f"verdict: {verdict} ({_timing(result, seconds)})")


def finding_counts(summaries: "pl.DataFrame") -> dict[str, int]:
    """How often each finding occurs, over all channels; without those that do not occur."""
    from broadloom.pipeline.tables.audit_findings import FINDINGS

    counts = {name: int(summaries[f"{name}_count"].sum()) for name in FINDINGS}
    return {name: count for name, count in counts.items() if count}


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
