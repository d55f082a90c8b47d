"""`python -m bench.pipeline`: generate tapes, measure both engines, compare and report.

Exit status 1 if the results differ, or if the audit does not find exactly the injected faults.
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.machine import CORES, description
from bench.pipeline import report
from bench.pipeline.child_process import ENDED
from bench.pipeline.measure import Measurement, MeasurementError, measure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.pipeline.tapes import SyntheticTape

ROOT = Path(__file__).parents[2]
EVENTS = "1000000,3000000,10000000"
WIDE = 190
Show = Callable[[str], None]


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipeline", description="The pipeline on Spark, and the same questions in DuckDB."
    )
    parser.add_argument("--events", default=EVENTS, metavar="N,N", help=f"sizes of the tapes; {EVENTS}, if not said")
    parser.add_argument("--peers", type=int, default=100, help="of each tape; 100, if not said")
    parser.add_argument("--repeats", type=int, default=1, help="how often each is measured; the calmest counts")
    parser.add_argument("--memory", default="4g", help="of Spark's Java; 4g, if not said")
    parser.add_argument("--tapes", type=Path, default=ROOT / "build" / "pipeline-tapes", help="where tapes are kept")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "pipeline", help="of the figures")
    parser.add_argument("--plot", type=Path, help="SVG of the growth; growth.svg beside the figures, if not said")
    parser.add_argument(
        "--report", type=Path, nargs="+", metavar="JSON", help="measure nothing: tables and plot of these results.json"
    )
    return parser


@contextmanager
def progress(console: Console) -> "Iterator[Callable[[str], Show]]":
    """For each measurement a line that tells its step."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:

        def line(title: str) -> Show:
            task = bars.add_task(title, total=1)
            if not console.is_terminal:
                console.print(title)

            def show(step: str) -> None:
                bars.update(task, description=f"{title}: {step}", completed=int(step == ENDED))
                if not console.is_terminal:
                    console.print(f"  {step}")

            return show

        yield line


def measure_size(
    given: argparse.Namespace, tape: "SyntheticTape", line: Callable[[str], Show]
) -> tuple[list[Measurement], str]:
    """Measure both engines on one tape. The text lists differences and is empty if there are none."""
    from bench.pipeline.ask import open_database
    from bench.pipeline.same import differences, reported_faults
    from broadloom.pipeline.results import Results

    work = given.out / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    title = f"{tape.events:,} events"
    rows = [str(tape.folder), str(work / "spark"), "--memory", given.memory]
    measured = [measure("spark", tape.events, rows, work / "spark.log", line(f"{title}, Spark"))]
    clock_offsets = Results(work / "spark").files("clock_offsets")
    rows = [str(tape.folder), str(work / "duckdb"), "--clock-offsets", *map(str, clock_offsets)]
    measured.append(measure("duckdb", tape.events, rows, work / "duckdb.log", line(f"{title}, DuckDB")))
    show = line(f"{title}, compared")
    unlike = differences(open_database(tape.folder, clock_offsets, CORES), work / "spark", work / "duckdb")
    wrong = [f"{name}: {count:,} rows differ" for name, count in unlike.items() if count]
    reported, injected = reported_faults(work / "spark"), set(tape.injected)
    wrong += [f"injected, not found: {each}" for each in injected - reported]
    wrong += [f"found, not injected: {each}" for each in reported - injected]
    show(ENDED)
    shutil.rmtree(work)
    return measured, "\n".join(wrong)


def show_tables(measured: list[Measurement], console: Console) -> None:
    for title, lines in (
        ("Totals, starting up left out", report.totals(measured)),
        ("Growth: how many times as much", report.growth(measured)),
        ("Tables", report.steps(measured)),
    ):
        grid = Table(title=title, title_justify="left")
        for name in lines[0]:
            grid.add_column(name, justify="left" if name == lines[0][0] else "right")
        for line in lines[1:]:
            grid.add_row(*line)
        console.print(grid)


def report_results(given: argparse.Namespace, measured: list[Measurement], machine: str, console: Console) -> None:
    chosen = report.least_disturbed(measured)
    show_tables(chosen, console)
    (given.out / "tables.md").write_text(report.markdown(chosen, machine))
    plot = given.plot or given.out / "growth.svg"
    report.draw(chosen, plot)
    console.print(f"{given.out}: results.json, tables.md; {plot}", soft_wrap=True)


def run(given: argparse.Namespace, sizes: list[int], console: Console) -> int:
    from bench.pipeline.tapes import synthetic_tape

    measured: list[Measurement] = []
    problems: list[str] = []
    try:
        with progress(console) as line:
            for size in sizes:
                show = line(f"{size:,} events, made")
                tape = synthetic_tape(given.tapes, size, given.peers)
                show(ENDED)
                for _ in range(given.repeats):
                    more, wrong = measure_size(given, tape, line)
                    measured += more
                    problems += [wrong] if wrong else []
                    report.save(measured, description(), given.out / "results.json")
    except MeasurementError as problem:
        console.print(str(problem), style="red", markup=False)
        return 1
    report_results(given, measured, description(), console)
    for each in problems:
        console.print(each, style="red", markup=False)
    console.print("both say the same, and the audit found exactly what was planted" if not problems else "NOT the same")
    return 1 if problems else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = options()
    given = parser.parse_args(arguments)
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    given.out.mkdir(parents=True, exist_ok=True)
    if given.report:
        parts = [report.load(path) for path in given.report]
        measured = [each for part, _ in parts for each in part]
        report.save(measured, parts[0][1], given.out / "results.json")
        report_results(given, measured, parts[0][1], console)
        return 0
    try:
        sizes = sorted(int(word) for word in given.events.split(","))
    except ValueError:
        parser.error(f"--events wants whole numbers, as {EVENTS}, not {given.events!r}")
    for name in ("pyspark", "duckdb"):
        if find_spec(name) is None:
            parser.error(f"{name} is not installed: run this with .venv/bin/python, after `make setup`")
    return run(given, sizes, console)


if __name__ == "__main__":
    sys.exit(main())
