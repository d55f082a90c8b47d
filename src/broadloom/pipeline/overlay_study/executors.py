"""Runs many jobs in parallel, as Spark tasks or in local processes.

The results do not depend on where a job runs. Small jobs are packed into tasks that are worth starting, and large ones
come first, so that no core waits long for the last one.
"""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from broadloom.errors import BroadloomError
from broadloom.pipeline.engine.scheduler import run_tasks
from broadloom.pipeline.overlay_study.jobs import Figures, JobKind
from broadloom.pipeline.spark_errors import cause_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

TASK_S = 0.5
"""Minimum duration of a task: starting one costs some hundredths of a second."""
TASKS_MIN = 8
"""Minimum number of tasks, so that progress is visible."""
POLL_INTERVAL_S = 0.2
"""How often progress is polled."""

ProgressCallback = Callable[[int], None]
"""Called with the number of finished jobs."""


class StudyTaskError(BroadloomError):
    """A task failed."""


def pack_tasks(kind: JobKind, jobs: Sequence[Any]) -> list[list[int]]:
    """Tasks as indexes of their jobs, the most expensive first."""
    costs = [kind.cost_s(job) for job in jobs]
    worth_s = min(TASK_S, sum(costs) / TASKS_MIN)
    tasks: list[list[int]] = []
    filled_s = worth_s
    for index in sorted(range(len(jobs)), key=lambda index: -costs[index]):
        if filled_s >= worth_s:
            tasks.append([])
            filled_s = 0.0
        tasks[-1].append(index)
        filled_s += costs[index]
    return tasks


def run_on_spark(
    spark: "SparkSession", kind: JobKind, jobs: Sequence[Any], on_progress: ProgressCallback
) -> list[Figures]:
    """The figures of each job, in order."""
    tasks = _tasks(kind, jobs)
    context, group = spark.sparkContext, uuid4().hex

    def collect() -> list[Any]:
        context.setJobGroup(group, "broadloom study", interruptOnCancel=True)
        return run_tasks(context, _run_task, tasks)

    with ThreadPoolExecutor(1) as thread:
        collected = thread.submit(collect)
        try:
            while not wait([collected], timeout=POLL_INTERVAL_S).done:
                on_progress(round(_fraction_done(context, group, len(tasks)) * len(jobs)))
            found = dict(each for some in collected.result() for each in some)
        except KeyboardInterrupt:
            context.cancelJobGroup(group)
            raise
        except Exception as problem:
            cause = cause_of(problem)
            advice = "; use fewer peers or fewer cores" if "MemoryError" in cause else ""
            raise StudyTaskError(f"a Spark task failed: {cause}{advice}") from problem
    on_progress(len(jobs))
    return [found[index] for index in range(len(jobs))]


def _fraction_done(context: "SparkContext", group: str, tasks: int) -> float:
    tracker = context.statusTracker()
    done = 0
    for job in tracker.getJobIdsForGroup(group):
        job_info = tracker.getJobInfo(job)
        for stage in job_info.stageIds if job_info is not None else ():
            info = tracker.getStageInfo(stage)
            done += info.numCompletedTasks if info is not None else 0
    return min(done / tasks, 1.0)


def run_in_processes(
    kind: JobKind, jobs: Sequence[Any], on_progress: ProgressCallback, processes: int | None = None
) -> list[Figures]:
    """The same without Spark, on this machine only; starts in a second."""
    tasks = _tasks(kind, jobs)
    found: dict[int, Figures] = {}
    processes = min(processes or os.cpu_count() or 1, len(tasks))
    # Forked processes would inherit locks of Arrow and numba that may be held.
    with multiprocessing.get_context("spawn").Pool(processes) if processes > 1 else nullcontext() as pool:
        for rows in map(_run_task, tasks) if pool is None else pool.imap_unordered(_run_task, tasks):
            found.update(rows)
            on_progress(len(found))
    return [found[index] for index in range(len(jobs))]


_Task = tuple[Callable[[Any], Figures], list[tuple[int, Any]]]
"""What to do, and jobs with their indexes."""


def _tasks(kind: JobKind, jobs: Sequence[Any]) -> list[_Task]:
    return [(kind.work, [(index, jobs[index]) for index in task]) for task in pack_tasks(kind, jobs)]


def _run_task(task: _Task) -> list[tuple[int, Figures]]:
    work, jobs = task
    return [(index, work(job)) for index, job in jobs]
