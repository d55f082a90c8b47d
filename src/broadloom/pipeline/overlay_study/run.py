"""The studies: many overlays as jobs, run on Spark or in local processes, summarized as rows."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from broadloom.pipeline.overlay_study import summary
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
from broadloom.pipeline.overlay_study.parameters import Strategy, default_seeds
from broadloom.pipeline.overlay_study.summary import Row
from broadloom.pipeline.spark_session import is_running, session, stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART_SOURCES = 25_600
"""BFS sources per job: an exact diameter is searched in several jobs."""


class StudyProgress(Protocol):
    def phase(self, text: str) -> None: ...
    def update(self, completed: float, total: float | None = None) -> None: ...
    def advance(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs jobs on Spark, or in local processes without it."""

    spark: "SparkSession | None"
    progress: StudyProgress

    def run(self, kind: JobKind, jobs: Sequence[Any]) -> list[Figures]:
        def on_progress(done: int) -> None:
            self.progress.update(done, len(jobs))

        self.progress.phase("overlays")
        on_progress(0)
        if self.spark is None:
            return run_in_processes(kind, jobs, on_progress)
        return run_on_spark(self.spark, kind, jobs, on_progress)


@contextmanager
def executor(progress: StudyProgress, *, master: str = "", no_spark: bool = False) -> Iterator[Executor]:
    """An executor; a Spark session that was started for it is stopped at the end."""
    if no_spark:
        yield Executor(None, progress)
        return
    progress.phase("starting Spark")
    is_ours = not is_running()
    spark = session(master or None, name="broadloom study", quick=True)
    try:
        yield Executor(spark, progress)
    finally:
        if is_ours:
            stop()


def diameter(
    executor: Executor,
    sizes: Sequence[int],
    degree: int,
    seeds: Sequence[int],
    strategy: Strategy,
    *,
    exact_max: int,
    bfs_sources: int,
    distributed: bool,
) -> list[Row]:
    """Without seeds, their number depends on the size."""
    jobs = {size: [SpreadJob(size, degree, seed, *strategy) for seed in seeds or default_seeds(size)] for size in sizes}
    in_tasks = [] if distributed else [size for size in sizes if size <= TASK_PEERS_MAX]
    parts = [part for size in in_tasks for job in jobs[size] for part in _split_job(job, exact_max, bfs_sources)]
    rows = summary.diameters(parts, executor.run(SPREAD_JOB, parts)) if parts else []
    for size in sizes:
        if size not in in_tasks:
            rows += summary.diameters(jobs[size], [_distributed(executor, job) for job in jobs[size]])
    return sorted(rows, key=lambda row: sizes.index(row["peers"]))


def failures(
    executor: Executor,
    fractions: Sequence[float],
    sizes: Sequence[int],
    degree: int,
    seeds: Sequence[int],
    strategy: Strategy,
) -> list[Row]:
    jobs = [
        FailureJob(size, degree, seed, *strategy, tuple(fractions), which)
        for size in sizes
        for which in range(len(fractions))
        for seed in seeds
    ]
    return summary.failures(jobs, executor.run(FAILURE_JOB, jobs))


def join_strategies(
    executor: Executor, strategies: Sequence[Strategy], sizes: Sequence[int], degree: int, seeds: Sequence[int]
) -> list[Row]:
    jobs = [
        SpreadJob(size, degree, seed, *strategy, 0, size, with_connectivity=size <= CONNECTIVITY_PEERS_MAX)
        for size in sizes
        for strategy in strategies
        for seed in seeds
    ]
    return summary.join_strategies(jobs, executor.run(SPREAD_JOB, jobs))


def _split_job(job: SpreadJob, exact_max: int, bfs_sources: int) -> list[SpreadJob]:
    """Several jobs that search from every peer, or above `exact_max` one that searches from some."""
    if job.peers > exact_max:
        return [replace(job, bfs_sources=min(bfs_sources, job.peers))]
    return [
        replace(job, first=first, last=min(first + PART_SOURCES, job.peers))
        for first in range(0, job.peers, PART_SOURCES)
    ]


def _distributed(executor: Executor, job: SpreadJob) -> Figures:
    assert executor.spark is not None
    executor.progress.phase(f"{job.peers:,} peers in many tasks: BFS steps")
    start_s = time.perf_counter()
    reach = distributed_bfs(
        executor.spark,
        job.peers,
        job.degree,
        job.seed,
        job.strategy,
        job.choices,
        lambda _step: executor.progress.advance(),
    )
    return {
        "diameter": reach.eccentricity_max,
        "distance_sum": reach.distance_sum,
        "pairs": reach.sources * (job.peers - 1) - reach.unreached,
        "unreached": reach.unreached,
        "free_slots": None,
        "clustered_links": None,
        "connectivity": None,
        "grow_s": 0.0,
        "search_s": time.perf_counter() - start_s,
        "memory_mb": peak_memory_mb(),
    }
