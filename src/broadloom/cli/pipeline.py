"""`broadloom pipeline`: tables from tapes.

Spark and polars are imported only where a command needs them, so that usage errors are reported at once.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

from broadloom.cli.exit_codes import USAGE_ERROR, VERDICT_CODES, UsageError
from broadloom.cli.options import JsonOption, MasterOption, TapesOption, argument, option
from broadloom.cli.output import print_json
from broadloom.cli.pipeline_options import CsvOption, DriverMemoryOption, OutOption, SetOption, pipeline
from broadloom.cli.pipeline_output import (
    BuildProgress,
    build_summary,
    finding_counts,
    print_audit,
    print_build,
    print_frame,
    select_rows,
    stop_on_signal,
)
from broadloom.cli.runner import command

if TYPE_CHECKING:
    from broadloom.pipeline.build import BuildResult
    from broadloom.pipeline.live.follow import FollowProgress

P = ParamSpec("P")


@command("pipeline run", pipeline, extra="pipeline")
def run(
    tapes: TapesOption,
    out: OutOption,
    only: Annotated[
        list[str] | None,
        option("Build only this table and its inputs; repeatable.", "TABLE"),
    ] = None,
    follow: Annotated[bool, option("Keep live tables up to date until interrupted, in DIR/live.")] = False,
    settings: SetOption = None,
    master: MasterOption = "",
    driver_memory: DriverMemoryOption = "",
    json: JsonOption = False,
) -> None:
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
        _follow(tapes, out, chosen, master, driver_memory, json=json)
        return
    result, seconds = _build(tapes, out, only or [], chosen, master, driver_memory)
    if json:
        print_json({"out": out, **build_summary(result, seconds)})
    else:
        print_build(result, out, seconds)


@command("pipeline show", pipeline, extra="pipeline")
def show(
    table: Annotated[str, argument("A table; `broadloom pipeline tables` lists them.", "TABLE")],
    out: OutOption,
    limit: Annotated[int, option("Maximum number of rows; 0 for all.", "N", min=0)] = 20,
    where: Annotated[str, option("SQL condition.", "SQL")] = "",
    columns: Annotated[str, option("Columns to show.", "NAME,…")] = "",
    json: JsonOption = False,
    csv: CsvOption = False,
) -> None:
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
    print_frame(found.question, frame, json=json, csv=csv)


@command("pipeline audit", pipeline, extra="pipeline", failure=USAGE_ERROR)
def audit(
    tapes: TapesOption,
    out: Annotated[Path | None, option("Keep the tables here.", "DIR", "--out", "-o")] = None,
    limit: Annotated[int, option("Maximum number of violations to show.", "N", min=0)] = 20,
    settings: SetOption = None,
    master: MasterOption = "",
    driver_memory: DriverMemoryOption = "",
    json: JsonOption = False,
) -> int:
    """Check that every message was delivered to every member, exactly once and in order.

    Exit status: 0 if every guarantee held, 1 if one was broken, 2 if the arguments are wrong or the audit failed, and 3
    if the verdict is unsettled (during a partition or a repair, messages are late and not lost) or unjudged (nothing
    was due, or part of it could not be judged, as with a file that cannot be read).

    Examples:

    - `broadloom pipeline audit --tapes tapes`
    - `broadloom pipeline audit --tapes tapes --out results --json | jq .verdict`
    """
    chosen = dict(_parse_setting(each) for each in settings or [])
    if out is not None:
        result, seconds = _build(tapes, out, ["audit_summary"], chosen, master, driver_memory)
        return _report_audit(result, seconds, out, limit, json=json)
    with tempfile.TemporaryDirectory(prefix="broadloom-audit-") as folder:
        wanted = ["quarantine", "audit_findings", "audit_summary"]
        result, seconds = _build(tapes, Path(folder), wanted, chosen, master, driver_memory, keep_inputs=False)
        return _report_audit(result, seconds, Path(folder), limit, json=json)


def _report_audit(result: "BuildResult", seconds: float, out: Path, limit: int, *, json: bool) -> int:
    import polars as pl

    from broadloom.pipeline.results import Results
    from broadloom.pipeline.tables import table
    from broadloom.pipeline.tables.audit_summary import audit_verdict

    results = Results(out)
    summaries = results.scan(table("audit_summary")).collect()
    violations = results.scan(table("audit_findings")).filter(pl.col("is_violation")).head(limit).collect()
    quarantine = results.scan(table("quarantine")).collect()
    verdict = audit_verdict(summaries, quarantine)
    if json:
        print_json(
            {
                "verdict": verdict,
                "finding_counts": finding_counts(summaries),
                "audit_summary": summaries.to_dicts(),
                "violations": violations.to_dicts(),
                "quarantine": quarantine.to_dicts(),
                **build_summary(result, seconds),
            }
        )
    else:
        print_audit(verdict, summaries, violations, quarantine, limit, result, seconds)
    return VERDICT_CODES[verdict]


def _build(
    tapes: Path,
    out: Path,
    only: list[str],
    settings: dict[str, str],
    master: str,
    memory: str,
    *,
    keep_inputs: bool = True,
) -> "tuple[BuildResult, float]":
    from broadloom.pipeline.spark_session import DRIVER_MEMORY, is_running, start_java, stop

    began = time.monotonic()
    is_ours = not is_running()
    try:
        if not master and tapes.is_dir() and not (out / "manifest.json").exists():
            start_java(memory or DRIVER_MEMORY)  # tables are certainly built
        from broadloom.pipeline.build import build_tables

        with BuildProgress("starting") as progress:
            result = build_tables(
                tapes,
                out,
                only=only or None,
                settings=settings,
                master=master or None,
                memory=memory or DRIVER_MEMORY,
                on_phase=progress.on_phase,
                keep_inputs=keep_inputs,
            )
    finally:
        if is_ours:
            stop()
    return result, time.monotonic() - began


def _follow(tapes: Path, out: Path, settings: dict[str, str], master: str, memory: str, *, json: bool) -> None:
    from broadloom.pipeline.live.follow import check_tapes, follow
    from broadloom.pipeline.live.settings import parse_settings
    from broadloom.pipeline.spark_session import DRIVER_MEMORY, session, stop

    rules, table_settings = parse_settings(settings)

    def on_progress(done: "FollowProgress") -> None:
        if json:
            counts = {"event_count": done.rows, "excluded_count": done.excluded_rows}
            print_json({"batch_id": done.batch, **counts, "duration_ms": round(1000 * done.seconds, 3)})
        else:
            late = f", {done.excluded_rows:,} late, in the future or invalid" if done.excluded_rows else ""
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
        late = f", {last.excluded_rows:,} of them late, in the future or invalid" if last.excluded_rows else ""
        print(f"{last.rows:,} events processed{late}; the tables are in {out}/live")


def _parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"a setting has the form NAME=VALUE, not {text!r}")
    return name.strip(), value.strip()


from broadloom.cli import pipeline_bills, pipeline_data  # noqa: E402, F401  (register commands, after those above)
