"""Studies on Spark, in processes and distributed over tasks; parameters and output."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from broadloom.cli.main import app
from broadloom.extras import missing_package
from broadloom.pipeline.overlay_study import distributed_bfs, parameters, summary
from broadloom.pipeline.overlay_study.bfs import bfs_from, distances_from
from broadloom.pipeline.overlay_study.components import component_stats
from broadloom.pipeline.overlay_study.executors import StudyTaskError, pack_tasks, run_in_processes, run_on_spark
from broadloom.pipeline.overlay_study.grow import grow
from broadloom.pipeline.overlay_study.jobs import FAILURE_JOB, SPREAD_JOB, FailureJob, Figures, SpreadJob
from broadloom.pipeline.overlay_study.join_strategies import JoinStrategy
from broadloom.pipeline.overlay_study.parameters import StudyUsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEASURED = ("grow_s", "search_s", "memory_mb")


def deterministic(figures: list[Figures]) -> list[Figures]:
    """Without what depends on the machine."""
    return [{name: value for name, value in each.items() if name not in MEASURED} for each in figures]


def spreads() -> list[SpreadJob]:
    jobs = [
        SpreadJob(peers, 4, seed, first=0, last=peers, with_connectivity=True) for peers in (6, 90) for seed in (1, 2)
    ]
    return [*jobs, SpreadJob(3_000, 4, 1, bfs_sources=20)]


# -- tasks


def test_packed_tasks_contain_every_job_once() -> None:
    jobs = [SpreadJob(peers, 4, 1, first=0, last=peers) for peers in (10, 100_000, 50, 20_000, 10)]
    tasks = pack_tasks(SPREAD_JOB, jobs)
    assert sorted(place for task in tasks for place in task) == [0, 1, 2, 3, 4]
    assert tasks[0] == [1]
    many = pack_tasks(SPREAD_JOB, [SpreadJob(100, 4, seed, first=0, last=100) for seed in range(10_000)])
    assert 8 <= len(many) <= 100


def test_spark_and_processes_give_equal_figures(spark: "SparkSession") -> None:
    told: list[int] = []
    jobs = spreads()
    there = run_on_spark(spark, SPREAD_JOB, jobs, told.append)
    assert told[-1] == len(jobs)
    assert deterministic(there) == deterministic(run_in_processes(SPREAD_JOB, jobs, lambda _done: None, processes=1))
    assert all(each["memory_mb"] for each in there)
    # And it is true.
    assert there[3]["diameter"] == bfs_from(grow(90, 4, 2), np.arange(90, dtype=np.int32)).eccentricity_max
    assert there[4]["connectivity"] is None


def test_failure_jobs_run_on_spark(spark: "SparkSession") -> None:
    jobs = [
        FailureJob(500, 4, seed, JoinStrategy.UNIFORM_EDGE, 1, (0.0, 0.3), which) for which in (0, 1) for seed in (1, 2)
    ]
    figures = run_on_spark(spark, FAILURE_JOB, jobs, lambda _done: None)
    whole = component_stats(grow(500, 4, 1), np.ones(500, dtype=np.bool_))
    assert (figures[0]["survivors"], figures[0]["components"], figures[0]["links"]) == (500, 1, whole.links)
    assert [each["survivors"] for each in figures[2:]] == [350, 350]
    assert deterministic(figures) == deterministic(run_in_processes(FAILURE_JOB, jobs, lambda _done: None, processes=1))


def test_failed_task_is_reported_in_one_line(spark: "SparkSession") -> None:
    with pytest.raises(StudyTaskError, match="no fabric has 5 peers of degree 1") as failed:
        run_on_spark(spark, SPREAD_JOB, [SpreadJob(5, 1, 1)], lambda _done: None)
    assert len(str(failed.value).splitlines()) == 1


def test_distributed_bfs_matches_local_search(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """The same distances as in one place, also where blocks are of different sizes and a degree is odd."""
    for peers, degree in ((distributed_bfs.BLOCK_PEERS + 1_003, 4), (7, 3)):
        blocks = distributed_bfs.grow_blocks(spark, peers, degree, 5)
        steps: list[int] = []
        found = distributed_bfs.distributed_distances(spark, blocks, peers, degree, peers // 3, steps.append)
        blocks.unpersist()
        assert (found == distances_from(grow(peers, degree, 5), peers // 3)).all()
        assert steps == list(range(1, int(found.max()) + 1))


# -- parts of one fabric


def test_partial_searches_are_merged() -> None:
    parts = [SpreadJob(900, 4, 3, first=first, last=first + 300) for first in (0, 300, 600)]
    whole = [SpreadJob(900, 4, 3, first=0, last=900)]
    rows = [
        summary.diameters(jobs, run_in_processes(SPREAD_JOB, jobs, lambda _done: None, processes=1))
        for jobs in (parts, whole)
    ]
    lasting_rows = [{name: value for name, value in row[0].items() if name not in MEASURED} for row in rows]
    assert lasting_rows[0] == lasting_rows[1]
    assert lasting_rows[0]["is_exact"] is True
    assert lasting_rows[0]["fabrics"] == 1
    assert lasting_rows[0]["is_regular"] is True


# -- words


def test_parameters_are_parsed() -> None:
    assert parameters.parse_sizes("100,1_000,100") == [100, 1_000]
    assert parameters.parse_seeds("3..5") == [3, 4, 5]
    assert parameters.parse_fractions("0.1..0.9") == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert parameters.parse_fractions("0.25,0.5") == [0.25, 0.5]
    assert parameters.parse_strategy("farthest-8") == (JoinStrategy.FARTHEST, 8)
    for name in parameters.strategy_names():
        assert parameters.strategy_name(*parameters.parse_strategy(name)) == name


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "1..2", "9999999999999"])
def test_invalid_sizes_raise_usage_error(text: str) -> None:
    with pytest.raises(StudyUsageError, match="--peers"):
        parameters.parse_sizes(text)


@pytest.mark.parametrize("text", ["", "x", "1", "-0.1", "0.5..0.1", "0.1..1", "nan", "inf"])
def test_invalid_fractions_raise_usage_error(text: str) -> None:
    with pytest.raises(StudyUsageError, match="--fraction"):
        parameters.parse_fractions(text)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("diameter --peers many", "--peers must be a number"),
        ("diameter --seeds 5..1", "--seeds"),
        ("diameter --degree 2", "3 to 64 links"),
        ("diameter --strategy best", "unknown join strategy 'best'"),
        ("diameter --strategy farthest", "number of candidates, 2 to 64"),
        ("diameter --plot x.pdf", ".svg or .png"),
        ("diameter --plot nowhere/x.svg", "no such directory"),
        ("diameter --distributed --no-spark", "require Spark"),
        ("diameter --master spark://x --no-spark", "exclude each other"),
        ("failures --fraction 2", "--fraction"),
        ("join-strategies --peers 50000", "at most 20,000 peers"),
    ],
)
def test_usage_error_is_one_line(line: str, told: str) -> None:
    result = CliRunner().invoke(app, ["study", *line.split()])
    assert result.exit_code == 2, result.output
    assert told in result.stderr
    assert result.stderr.startswith("broadloom study ")
    assert len(result.stderr.splitlines()) == 1


def test_missing_extra_is_reported_with_install_command() -> None:
    program = "import sys; sys.modules['numba'] = None; from broadloom.cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program, "study", "failures"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 3
    assert ended.stderr == f"broadloom study failures: {missing_package('numba', 'pipeline')}\n"


# -- commands


def run_study(*line: str) -> Any:
    result = CliRunner().invoke(app, ["study", *line, "--no-spark", "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_diameter_command_prints_rows_and_plots(tmp_path: Path) -> None:
    picture = tmp_path / "diameter.svg"
    said = run_study(
        "diameter", "--peers", "5,120,2000", "--seeds", "1..2", "--exact-max", "500", "--plot", str(picture)
    )
    assert [(row["peers"], row["is_exact"], row["fabrics"]) for row in said["rows"]] == [
        (5, True, 2),
        (120, True, 2),
        (2000, False, 2),
    ]
    assert said["rows"][0]["diameter_max"] == 1
    truth = [bfs_from(grow(2000, 4, seed), np.arange(2000, dtype=np.int32)).eccentricity_max for seed in (1, 2)]
    assert said["rows"][2]["diameter_max"] == max(truth)
    assert picture.read_text().startswith("<?xml")


def test_failures_command_prints_rows_and_plots(tmp_path: Path) -> None:
    picture = tmp_path / "kill.png"
    rows = run_study(
        "failures", "--fraction", "0.1..0.3", "--peers", "1000", "--seeds", "1..3", "--plot", str(picture)
    )["rows"]
    assert [(row["fraction"], row["survivors"]) for row in rows] == [(0.1, 900), (0.2, 800), (0.3, 700)]
    assert all(row["largest_min"] <= row["largest"] <= 1 for row in rows)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_join_strategies_command_prints_rows_and_plots(tmp_path: Path) -> None:
    picture = tmp_path / "pinning.svg"
    rows = run_study(
        "join-strategies",
        "--strategies",
        "uniform-edge,broadloom,farthest-4",
        "--peers",
        "150",
        "--seeds",
        "1..4",
        "--plot",
        str(picture),
    )["rows"]
    by_strategy = {row["strategy"]: row for row in rows}
    assert list(by_strategy) == ["uniform-edge", "broadloom", "farthest-4"]
    assert by_strategy["farthest-4"]["distance_mean"] < by_strategy["uniform-edge"]["distance_mean"]
    assert by_strategy["broadloom"]["clustered_links"] < by_strategy["uniform-edge"]["clustered_links"]
    assert picture.exists()


@pytest.mark.parametrize(
    "line",
    [
        "diameter --peers 450,2000 --exact-max 500",
        "failures --peers 300",
        "join-strategies --strategies uniform-edge --peers 60",
    ],
)
def test_studies_print_tables_without_json(line: str) -> None:
    result = CliRunner().invoke(app, ["study", *line.split(), "--seeds", "1", "--no-spark"])
    assert result.exit_code == 0, result.output
    assert "fabrics" in result.stdout
    if line.startswith("diameter"):
        assert "at least" in result.stdout
        assert "The paper observed 7 at 450." in result.stdout
