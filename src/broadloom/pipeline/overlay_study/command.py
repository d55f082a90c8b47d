"""`broadloom study …`: from the words of the command line to jobs, and from figures to tables, JSON and pictures."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from broadloom.pipeline.overlay_study import report, summary, words
from broadloom.pipeline.overlay_study.components import CONNECTIVITY_PEERS_MAX
from broadloom.pipeline.overlay_study.distributed_bfs import TASK_PEERS_MAX, distributed_bfs
from broadloom.pipeline.overlay_study.executors import run_in_processes, run_on_spark
from broadloom.pipeline.overlay_study.jobs import (
    FAILURE_JOB,
    SPREAD_JOB,
    FailureJob,
    Figures,
    JobKind,
    SpreadJob,
    peak_memory_mb,
)
from broadloom.pipeline.overlay_study.words import StudyUsageError
from broadloom.pipeline.spark_session import is_running, session, stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXACT_PEERS_MAX = 100_000
"""Up to this size all peers are searched from, unless told otherwise; the work grows with the square of the peers."""
PART_SOURCES = 25_600
"""Of one fabric, so many sources are searched from in one job."""
SEEDS_BY_PEERS = ((10_000, "1..20"), (1_000_000, "1..4"))
SEEDS_ELSE = "1..2"
FARTHEST_PEERS_MAX = 20_000
"""For the ways that look at the whole fabric for each newcomer."""

err = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Executor:
    """Where jobs run, and who watches."""

    spark: "SparkSession | None"
    progress: Progress

    def run(self, title: str, kind: JobKind, jobs: Sequence[Any]) -> list[Figures]:
        bar = self.progress.add_task(title, total=len(jobs))

        def tell_done(done: int) -> None:
            self.progress.update(bar, completed=done)

        if self.spark is None:
            return run_in_processes(kind, jobs, tell_done)
        return run_on_spark(self.spark, kind, jobs, tell_done)


@contextmanager
def _executor(master: str | None, no_spark: bool, cores: int | None = None) -> Iterator[Executor]:
    if master and no_spark:
        raise StudyUsageError("--master and --no-spark exclude each other")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        if no_spark:
            yield Executor(None, progress)
            return
        starting = progress.add_task("starting Spark", total=None)
        is_ours = not is_running()
        spark = session(master or None, name="broadloom study", cores=cores, quick=True)
        progress.remove_task(starting)
        try:
            yield Executor(spark, progress)
        finally:
            if is_ours:
                stop()


def diameter(
    *,
    peers: str,
    degree: int,
    seeds: str,
    strategy: str,
    exact_max: int,
    bfs_sources: int,
    distributed: bool,
    json: bool,
    plot: Path | None,
    master: str | None,
    no_spark: bool,
) -> int:
    """The whole command; returns the exit code."""
    start_s = time.perf_counter()
    sizes, degree, (chosen, choices) = (
        words.parse_sizes(peers),
        words.check_degree(degree),
        words.parse_strategy(strategy),
    )
    picture = words.check_image_path(plot)
    if no_spark and (distributed or max(sizes) > TASK_PEERS_MAX):
        raise StudyUsageError(
            f"a fabric over many tasks (--distributed, or more than {TASK_PEERS_MAX:,} peers) needs Spark"
        )
    rows = []
    with _executor(master, no_spark) as where:
        local: list[SpreadJob] = []
        for size in sizes:
            for seed in words.parse_seeds(seeds or _seeds_for(size)):
                if distributed or size > TASK_PEERS_MAX:
                    continue
                local += _split_job(SpreadJob(size, degree, seed, chosen, choices), exact_max, bfs_sources)
        figures = where.run("fabrics", SPREAD_JOB, local) if local else []
        rows = summary.diameters(local, figures)
        for size in sizes:
            if distributed or size > TASK_PEERS_MAX:
                found = [
                    _distributed(where, SpreadJob(size, degree, seed, chosen, choices))
                    for seed in words.parse_seeds(seeds or _seeds_for(size))
                ]
                rows += summary.diameters([job for job, _ in found], [each for _, each in found])
    rows.sort(key=lambda row: sizes.index(row["peers"]))
    about = {"study": "diameter", "degree": degree, "way": strategy, "seconds": round(time.perf_counter() - start_s, 1)}
    report.diameters(about, rows, json=json)
    if picture is not None:
        from broadloom.pipeline.overlay_study import plot as plots

        plots.diameters(rows, degree, picture)
    return 0


def _seeds_for(peers: int) -> str:
    for size, seeds in SEEDS_BY_PEERS:
        if peers <= size:
            return seeds
    return SEEDS_ELSE


def _split_job(job: SpreadJob, exact_max: int, bfs_sources: int) -> list[SpreadJob]:
    """A job of all sources as several, or one of some."""
    if job.peers > exact_max:
        return [replace(job, sweeps=min(bfs_sources, job.peers))]
    return [
        replace(job, first=first, last=min(first + PART_SOURCES, job.peers))
        for first in range(0, job.peers, PART_SOURCES)
    ]


def _distributed(executor: Executor, job: SpreadJob) -> tuple[SpreadJob, Figures]:
    assert executor.spark is not None
    bar = executor.progress.add_task(f"{job.peers:,} peers over tasks, steps", total=None)
    start_s = time.perf_counter()
    reach = distributed_bfs(
        executor.spark,
        job.peers,
        job.degree,
        job.seed,
        job.strategy,
        job.choices,
        lambda _step: executor.progress.advance(bar),
    )
    executor.progress.remove_task(bar)
    return job, {
        "diameter": reach.eccentricity_max,
        "distance_sum": reach.distance_sum,
        "pairs": reach.sources * (job.peers - 1) - reach.unreached,
        "unreached": reach.unreached,
        "holes": None,
        "dense_links": None,
        "connectivity": None,
        "grow_s": 0.0,
        "search_s": time.perf_counter() - start_s,
        "memory_mb": peak_memory_mb(),
    }


def failures(
    *,
    fraction: str,
    peers: str,
    degree: int,
    seeds: str,
    strategy: str,
    json: bool,
    plot: Path | None,
    master: str | None,
    no_spark: bool,
) -> int:
    start_s = time.perf_counter()
    shares, degree, (chosen, choices) = (
        words.parse_fractions(fraction),
        words.check_degree(degree),
        words.parse_strategy(strategy),
    )
    sizes, numbers, picture = words.parse_sizes(peers), words.parse_seeds(seeds), words.check_image_path(plot)
    jobs = [
        FailureJob(size, degree, seed, chosen, choices, tuple(shares), which)
        for size in sizes
        for which in range(len(shares))
        for seed in numbers
    ]
    with _executor(master, no_spark) as where:
        rows = summary.failures(jobs, where.run("fabrics", FAILURE_JOB, jobs))
    about = {"study": "kill", "degree": degree, "way": strategy, "seconds": round(time.perf_counter() - start_s, 1)}
    report.failures(about, rows, json=json)
    if picture is not None:
        from broadloom.pipeline.overlay_study import plot as plots

        plots.failures(rows, degree, picture)
    return 0


def join_strategies(
    *,
    strategies: str,
    peers: str,
    degree: int,
    seeds: str,
    json: bool,
    plot: Path | None,
    master: str | None,
    no_spark: bool,
) -> int:
    start_s = time.perf_counter()
    chosen, degree = [words.parse_strategy(each) for each in strategies.split(",")], words.check_degree(degree)
    sizes, numbers, picture = words.parse_sizes(peers), words.parse_seeds(seeds), words.check_image_path(plot)
    for size in sizes:
        if size > FARTHEST_PEERS_MAX and any(way.name == "FAR" for way, _ in chosen):
            raise StudyUsageError(
                f"far-k looks at the whole fabric for each newcomer: at most {FARTHEST_PEERS_MAX:,} peers"
            )
        if size > EXACT_PEERS_MAX:
            raise StudyUsageError(
                f"--peers: exact distances are wanted here, so at most {EXACT_PEERS_MAX:,}, not {size:,}"
            )
    jobs = [
        SpreadJob(size, degree, seed, way, choices, 0, size, with_connectivity=size <= CONNECTIVITY_PEERS_MAX)
        for size in sizes
        for way, choices in chosen
        for seed in numbers
    ]
    with _executor(master, no_spark) as where:
        rows = summary.join_strategies(jobs, where.run("fabrics", SPREAD_JOB, jobs))
    about = {"study": "pinning", "degree": degree, "seconds": round(time.perf_counter() - start_s, 1)}
    report.join_strategies(about, rows, json=json)
    if picture is not None:
        from broadloom.pipeline.overlay_study import plot as plots

        plots.join_strategies(rows, degree, picture)
    return 0
