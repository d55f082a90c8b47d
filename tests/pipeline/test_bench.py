"""The pipeline benchmark on a small tape: Spark and DuckDB agree, and the measurements are right."""

import subprocess
import sys

import polars as pl
import pytest

pytest.importorskip("duckdb", reason="DuckDB is the reference here")

from bench.pipeline import report
from bench.pipeline.ask import open_database, run_query
from bench.pipeline.child_process import TABLES
from bench.pipeline.measure import Cost, Measurement
from bench.pipeline.questions import QUERIES
from bench.pipeline.same import differences, reported_faults
from bench.pipeline.tapes import synthetic_tape
from bench.pipeline.watch import DRIVER, WORKERS, ProcessMonitor
from broadloom.pipeline import build
from broadloom.pipeline.results import Results

EVENTS, PEERS = 10_000, 20


@pytest.mark.long
def test_spark_and_duckdb_agree_and_find_injected_faults(spark, tmp_path):
    tape = synthetic_tape(tmp_path / "tapes", EVENTS, PEERS)
    results, answers = tmp_path / "results", tmp_path / "answers"
    answers.mkdir()
    outcome = build.build_tables(tape.folder, results, only=list(TABLES), spark=spark)
    assert outcome.manifest.tapes["rows"] == tape.events
    assert outcome.manifest.tables["messages"].rows == tape.messages
    base = open_database(tape.folder, Results(results).files("clock_offsets"), 2)
    rows = {name: run_query(base, name, answers) for name in QUERIES}
    assert rows == {name: outcome.manifest.tables[name].rows for name in QUERIES}
    assert differences(base, results, answers) == dict.fromkeys(QUERIES, 0)
    assert reported_faults(results) == set(tape.injected)
    # A change of one cell must be noticed.
    path = answers / "latency.parquet"
    changed = pl.read_parquet(path).with_columns(
        pl.col("latency_p99_ms") + (pl.int_range(pl.len()) == 0).cast(pl.Int64)
    )
    changed.write_parquet(path)
    assert differences(base, results, answers)["latency"] == 2


def test_synthetic_tape_is_generated_once_and_reproducible(tmp_path):
    first = synthetic_tape(tmp_path / "one", EVENTS, PEERS)
    (path, *_) = sorted(first.folder.rglob("*.parquet"))
    written = path.stat().st_mtime_ns
    assert synthetic_tape(tmp_path / "one", EVENTS, PEERS) == first
    assert path.stat().st_mtime_ns == written
    other = synthetic_tape(tmp_path / "other", EVENTS, PEERS)
    assert (other.events, other.injected) == (first.events, first.injected)
    assert pl.read_parquet(path).equals(pl.read_parquet(other.folder / path.relative_to(first.folder)))


WORK = """
import time
held = b"x" * 50_000_000
while time.process_time() < 0.5:
    pass
print("done", flush=True)
input()
"""
BOTH = f"""
import subprocess, sys
inner = subprocess.Popen([sys.executable, "-c", {WORK!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
inner.stdout.readline()
{WORK}
inner.communicate(b"go\\n")
"""


def test_process_monitor_includes_child_processes():
    """Each of the two processes uses half a second of CPU time, then waits."""
    with subprocess.Popen([sys.executable, "-c", BOTH], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        watch = ProcessMonitor(child.pid)
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        cpu_s = watch.cpu_s()
        child.communicate(b"go\n")
        watch.stop()
    assert child.returncode == 0
    # The kernel reports hundredths, rounded down, for two processes in user and system mode.
    assert 0.96 <= cpu_s < 5.0
    assert watch.peaks_bytes[DRIVER] > 50_000_000
    assert watch.peaks_bytes[WORKERS] > 50_000_000
    assert watch.peak_bytes > 100_000_000


def test_report_selects_least_disturbed_run_and_computes_growth(tmp_path):
    measured = [
        _measured("spark", 1_000, 1.5, foreign=0.8),
        _measured("spark", 1_000, 2.0),
        _measured("spark", 1_000, 4.0, foreign=0.3),
        _measured("spark", 10_000, 18.0),
        _measured("duckdb", 1_000, 0.5),
    ]
    chosen = report.least_disturbed(measured)
    assert [(each.engine, each.events, each.work.cpu_s) for each in chosen] == [
        ("spark", 1_000, 2.0),
        ("spark", 10_000, 18.0),
        ("duckdb", 1_000, 0.5),
    ]
    assert report.growth(chosen)[1:] == [["spark", "1,000", "10,000", "10.00", "9.00", "9.00", "1.00"]]
    report.save(measured, "a machine", tmp_path / "results.json")
    assert report.load(tmp_path / "results.json") == (measured, "a machine")
    assert "| spark | 10,000 |" in report.markdown(chosen, "a machine")
    report.draw(chosen, tmp_path / "growth.svg")
    assert "<svg" in (tmp_path / "growth.svg").read_text()


def _measured(engine: str, events: int, cpu_s: float, foreign: float = 0.0) -> Measurement:
    work = Cost(cpu_s, cpu_s)
    return Measurement(engine, events, Cost(1, 1), work, {"messages": work}, 1 << 20, foreign=foreign)
