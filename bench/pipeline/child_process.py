"""One measurement in a process of its own: `python -m bench.pipeline.child_process spark|duckdb TAPE OUT ...`.

It prints a JSON object at the start of each step; the parent process takes the time.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.machine import CORES
from bench.pipeline.ask import open_database, run_query
from bench.pipeline.questions import QUERIES

TABLES = (
    *("messages", "deliveries", "recorded_peers", "delivery_balances", "audit_findings", "audit_summary"),
    *("clock_offsets", "membership_intervals", "links", "fabric_snapshots", "repairs", "latency", "redundancy"),
    "link_latency",
)
STARTED, ENDED = "started", "ended"
AUDIT, ALL = "messages to verdict", "all tables"
STEP, ROWS = "step", "rows"


def report_step(step: str, **more: object) -> None:
    print(json.dumps({STEP: step, **more}), flush=True)


def by_spark(tape: Path, out: Path, memory: str) -> None:
    """The real build, twice: messages to verdict, and then all tables, each from the tapes."""
    from broadloom.pipeline import build
    from broadloom.pipeline.spark_session import session, stop

    spark = session(name="broadloom bench", memory=memory, quick=True)
    spark.range(1).count()
    report_step(STARTED)
    report_step(AUDIT)
    build.build_tables(tape, out.with_name("audit"), only=["audit_summary"], spark=spark)
    report_step(ALL)
    outcome = build.build_tables(tape, out, only=list(TABLES), spark=spark)
    report_step(ENDED, rows={name: outcome.manifest.tables[name].rows for name in outcome.built})
    stop()


def by_duckdb(tape: Path, out: Path, clock_offsets: list[Path]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    base = open_database(tape, clock_offsets, CORES)
    report_step(STARTED)
    rows = {}
    for name in QUERIES:
        report_step(name)
        rows[name] = run_query(base, name, out)
    report_step(ENDED, rows=rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline.child_process")
    parser.add_argument("engine", choices=["spark", "duckdb"])
    parser.add_argument("tape", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--clock-offsets", type=Path, nargs="*", default=[])
    given = parser.parse_args(arguments)
    if given.engine == "spark":
        by_spark(given.tape, given.out, given.memory)
    else:
        by_duckdb(given.tape, given.out, given.clock_offsets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
