"""`broadloom pipeline`: tables from tapes.

Spark and polars are imported only where a command needs them, so that usage errors are reported at once.
"""

import functools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

from broadloom.cli.exit_codes import (
    FAILURE,
    NOT_SUPPORTED,
    SUCCESS,
    CommandFailedError,
    UsageError,
    require_extra,
)
from broadloom.cli.options import JsonOption, command_group, option
from broadloom.cli.output import print_json
from broadloom.cli.pipeline_output import (
    BuildProgress,
    build_summary,
    print_audit,
    print_build,
    print_rows,
    select_rows,
    stop_on_signal,
    unnest,
)
from broadloom.cli.runner import run_reporting_errors

if TYPE_CHECKING:
    from broadloom.pipeline.build import BuildResult
    from broadloom.pipeline.live.follow import FollowProgress

P = ParamSpec("P")

pipeline = command_group(
    help="""Build tables from tapes: deliveries, latency, sessions, invoices.

    Runs on Spark, on this machine or on a cluster. Needs the extra: `pip install 'broadloom[pipeline]'`.

    Examples:

    - `broadloom pipeline run --tapes tapes --out results`
    - `broadloom pipeline show audit_summary --out results`
    - `broadloom pipeline audit --tapes tapes`
    """,
)

TapesOption = Annotated[Path, typer.Option("--tapes", metavar="DIR", help="Directory of tapes.")]
OutOption = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Directory of results.")]
MasterOption = Annotated[
    str, option("--master", metavar="URL", help="Spark master URL. Default: all cores of this machine.")
]
DriverMemoryOption = Annotated[
    str, typer.Option("--driver-memory", metavar="SIZE", help="Driver memory, as 4g.", show_default="4g")
]
SetOption = Annotated[
    list[str] | None,
    option(
        "--set",
        metavar="NAME=VALUE",
        help="Table setting; repeatable. `broadloom pipeline tables --json` lists them.",
    ),
]


def _reports_errors(command: str) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """As `runner.reports_errors`. Errors of the pipeline are usage errors, except those of a running job."""

    def decorate(function: Callable[P, int]) -> Callable[P, int]:
        @functools.wraps(function)
        def reporting(*args: P.args, **kwargs: P.kwargs) -> int:
            def act() -> int:
                require_extra("pipeline")
                from broadloom.errors import BroadloomError
                from broadloom.pipeline.build import BuildError

                try:
                    return function(*args, **kwargs)
                except BuildError as problem:
                    raise CommandFailedError(str(problem)) from problem
                except BroadloomError as problem:
                    is_failure = type(problem).__name__ == "FollowError"  # importing it would import Spark
                    raise (CommandFailedError if is_failure else UsageError)(str(problem)) from problem

            return run_reporting_errors(f"pipeline {command}", act)

        return reporting

    return decorate


@pipeline.command()
@_reports_errors("run")
def run(
    tapes: TapesOption,
    out: OutOption,
    only: Annotated[
        list[str] | None,
        option("--only", metavar="TABLE", help="Build only this table and its inputs; repeatable."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep live tables up to date until interrupted, in DIR/live.")
    ] = False,
    settings: SetOption = None,
    master: MasterOption = "",
    driver_memory: DriverMemoryOption = "",
    json: JsonOption = False,
) -> int:
    """Build tables from tapes.

    Tables are Parquet files. Tables whose inputs have not changed since the last run are not built again. Files that
    cannot be used are listed in the table quarantine.

    With --follow, live tables of traffic, latency, sessions and fabric are kept up to date while tapes grow. It can be
    stopped and restarted at any time; nothing is lost or counted twice.

    Examples:

    - `broadloom pipeline run --tapes tapes --out results`
    - `broadloom pipeline run --tapes tapes --out results --only latency`
    - `broadloom pipeline run --tapes tapes --out results --follow`
    - `broadloom pipeline run --tapes tapes --out results --master spark://10.0.0.5:7077`
    """
    chosen = dict(_parse_setting(each) for each in settings or [])
    if follow:
        if only:
            raise UsageError("--follow keeps all live tables up to date: omit --only")
        return _follow(tapes, out, chosen, master, driver_memory, json=json)
    result, seconds = _build(tapes, out, only or [], chosen, master, driver_memory)
    if json:
        print_json({"out": out, **build_summary(result, seconds)})
    else:
        print_build(result, out, seconds)
    return SUCCESS


@pipeline.command()
@_reports_errors("show")
def show(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table; `broadloom pipeline tables` lists them.")],
    out: OutOption,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Maximum number of rows; 0 for all.")] = 20,
    where: Annotated[str, option("--where", metavar="SQL", help="SQL condition.")] = "",
    columns: Annotated[str, option("--columns", metavar="NAME,…", help="Columns to show.")] = "",
    json: JsonOption = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> int:
    """Show rows of a table.

    Does not start Spark.

    Examples:

    - `broadloom pipeline show audit_summary --out results`
    - `broadloom pipeline show audit_findings --out results --where "finding = 'missing'"`
    - `broadloom pipeline show messages --out results --limit 0 --csv`
    """
    from broadloom.pipeline.results import Results
    from broadloom.pipeline.tables import table as find_table

    found = find_table(table)
    frame = select_rows(Results(out).scan(found), where, columns, limit or None)
    if json:
        for row in frame.iter_rows(named=True):
            print_json(row)
    elif csv:
        sys.stdout.write(unnest(frame).write_csv())
    else:
        print_rows(found.question, frame.columns, frame.iter_rows())
    return SUCCESS


@pipeline.command()
@_reports_errors("plot")
def plot(
    out: OutOption,
    image: Annotated[Path, typer.Option("--image", metavar="FILE", help="Output image, .svg or .png.")] = Path(
        "channel.svg"
    ),
    channel: Annotated[
        str, option("--channel", metavar="ID", help="Channel ID, if the results have several channels.")
    ] = "",
    json: JsonOption = False,
) -> int:
    """Plot the history of a channel.

    Shows peers, repairs, latency and hops. Does not start Spark.

    Examples:

    - `broadloom pipeline plot --out results`
    - `broadloom pipeline plot --out results --image week.png --channel 9bae618a73998c1e`
    """
    from broadloom.pipeline.plot import plot_channel

    plotted = plot_channel(out, image, channel)
    if json:
        print_json({"image": image, "channel": plotted})
    else:
        print(f"{image}: channel {plotted}")
    return SUCCESS


@pipeline.command()
@_reports_errors("tables")
def tables(json: JsonOption = False) -> int:
    """List the tables and the question each one answers.

    With --json, also columns and settings.

    Examples:

    - `broadloom pipeline tables`
    - `broadloom pipeline tables --json | jq .columns`
    """
    from broadloom.pipeline.tables import all_tables

    if not json:
        print_rows("Tables", ["table", "question"], ((each.name, each.question) for each in all_tables()))
        return SUCCESS
    for each in all_tables():
        columns = [{"name": column.name, "type": column.spark, "about": column.about} for column in each.columns]
        settings = [{"name": one.name, "default": one.default, "about": one.about} for one in each.settings]
        print_json({"table": each.name, "question": each.question, "columns": columns, "settings": settings})
    return SUCCESS


@pipeline.command()
@_reports_errors("audit")
def audit(
    tapes: TapesOption,
    out: Annotated[Path | None, option("--out", "-o", metavar="DIR", help="Keep the tables here.")] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Maximum number of violations to show.")] = 20,
    settings: SetOption = None,
    master: MasterOption = "",
    driver_memory: DriverMemoryOption = "",
    json: JsonOption = False,
) -> int:
    """Check that every message was delivered to every member, exactly once and in order.

    Exit status 0 only if every guarantee held, 1 if there are violations, 3 if the tapes could not be judged.

    Examples:

    - `broadloom pipeline audit --tapes tapes`
    - `broadloom pipeline audit --tapes tapes --out results --json | jq .has_passed`
    """
    if out is None:
        with tempfile.TemporaryDirectory(prefix="broadloom-audit-") as directory:
            return _audit(tapes, Path(directory), settings or [], master, driver_memory, limit, json=json)
    return _audit(tapes, out, settings or [], master, driver_memory, limit, json=json)


def _audit(tapes: Path, out: Path, settings: list[str], master: str, memory: str, limit: int, *, json: bool) -> int:
    import polars as pl

    from broadloom.pipeline.results import Results
    from broadloom.pipeline.tables import table

    chosen = dict(_parse_setting(each) for each in settings)
    result, seconds = _build(tapes, out, ["audit_summary"], chosen, master, memory)
    results = Results(out)
    summaries = results.scan(table("audit_summary")).collect()
    violations = results.scan(table("audit_findings")).filter(pl.col("is_violation")).head(limit).collect()
    quarantine = results.scan(table("quarantine")).collect()
    has_passed = summaries.height > 0 and bool(summaries["has_passed"].all())
    if json:
        print_json(
            {
                "has_passed": has_passed,
                "audit_summary": summaries.to_dicts(),
                "violations": violations.to_dicts(),
                "quarantine": quarantine.to_dicts(),
                **build_summary(result, seconds),
            }
        )
    else:
        print_audit(summaries, violations, quarantine, limit, result, seconds)
    return SUCCESS if has_passed else FAILURE if summaries.height else NOT_SUPPORTED


def _build(
    tapes: Path, out: Path, only: list[str], settings: dict[str, str], master: str, memory: str
) -> "tuple[BuildResult, float]":
    from broadloom.pipeline.build import build_tables
    from broadloom.pipeline.spark_session import DRIVER_MEMORY, is_running, stop

    began = time.monotonic()
    is_ours = not is_running()
    try:
        with BuildProgress("starting") as progress:
            result = build_tables(
                tapes,
                out,
                only=only or None,
                settings=settings,
                master=master or None,
                memory=memory or DRIVER_MEMORY,
                progress=progress,
            )
    finally:
        if is_ours:
            stop()
    return result, time.monotonic() - began


def _follow(tapes: Path, out: Path, settings: dict[str, str], master: str, memory: str, *, json: bool) -> int:
    from broadloom.pipeline.live.follow import check_tapes, follow
    from broadloom.pipeline.live.settings import parse_settings
    from broadloom.pipeline.spark_session import DRIVER_MEMORY, session, stop

    rules, table_settings = parse_settings(settings)

    def on_progress(done: "FollowProgress") -> None:
        if json:
            counts = {"event_count": done.rows, "excluded_count": done.excluded_rows}
            print_json({"batch_id": done.batch, **counts, "duration_ms": round(1000 * done.seconds, 3)})
        elif sys.stderr.isatty():
            late = f", {done.excluded_rows:,} late or in the future" if done.excluded_rows else ""
            text = f"batch {done.batch}: {done.rows:,} events of {done.channels} channels{late} ({done.seconds:.1f} s)"
            print(text, file=sys.stderr, flush=True)

    check_tapes(tapes)
    try:
        spark = session(master or None, name="broadloom follow", memory=memory or DRIVER_MEMORY)
        with stop_on_signal() as stopping:
            last = follow(
                tapes, out, rules=rules, settings=table_settings, stop=stopping, on_progress=on_progress, spark=spark
            )
    finally:
        stop()
    if last is not None and not json:
        late = f", {last.excluded_rows:,} of them late or in the future" if last.excluded_rows else ""
        print(f"{last.rows:,} events processed{late}; the tables are in {out}/live")
    return SUCCESS


def _parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"a setting has the form NAME=VALUE, not {text!r}")
    return name.strip(), value.strip()
