"""Runs many jobs in parallel, as Spark tasks or in local processes.

The results do not depend on where a job runs. Small jobs are packed into tasks that are worth starting, and large ones
come first, so that no core waits long for the last one.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]

from broadloom.errors import BroadloomError
from broadloom.pipeline.overlay_study.jobs import Figures, JobKind

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

_ARROW = {"long": pa.int64(), "double": pa.float64()}


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


# -- on Spark


def run_on_spark(
    spark: "SparkSession", kind: JobKind, jobs: Sequence[Any], on_progress: ProgressCallback
) -> list[Figures]:
    """The figures of each job, in order."""
    tasks = pack_tasks(kind, jobs)
    ddl = ", ".join(["index long", *(f"{name} {type_}" for name, type_ in kind.columns.items())])
    work = partial(_run_batches, kind, [[(index, jobs[index]) for index in task] for task in tasks])
    answers = spark.range(0, len(tasks), 1, numPartitions=len(tasks)).mapInArrow(work, ddl)
    context, group = spark.sparkContext, uuid4().hex
    sizes = [len(task) for task in tasks]

    def collect() -> "pa.Table":
        context.setJobGroup(group, "broadloom study", interruptOnCancel=True)
        return answers.toArrow()

    with ThreadPoolExecutor(1) as thread:
        collected = thread.submit(collect)
        try:
            while not wait([collected], timeout=POLL_INTERVAL_S).done:
                on_progress(round(_fraction_done(context, group, len(tasks)) * sum(sizes)))
            table = collected.result()
        except KeyboardInterrupt:
            context.cancelJobGroup(group)
            raise
        except Exception as problem:
            raise StudyTaskError(f"a Spark task failed: {_reason(problem)}") from problem
    figures: list[Figures] = [{} for _ in jobs]
    for row in table.to_pylist():
        figures[row.pop("index")] = row
    on_progress(len(jobs))
    return figures


def _run_batches(
    kind: JobKind, tasks: list[list[tuple[int, Any]]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs in a Spark task: the input rows are the numbers of the tasks."""
    schema = pa.schema([("index", pa.int64()), *((name, _ARROW[type_]) for name, type_ in kind.columns.items())])
    for batch in batches:
        for task in batch.column(0).to_pylist():
            rows = [{"index": index, **kind.work(job)} for index, job in tasks[task]]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _fraction_done(context: "SparkContext", group: str, tasks: int) -> float:
    tracker = context.statusTracker()
    done = 0
    for job in tracker.getJobIdsForGroup(group):
        job_info = tracker.getJobInfo(job)
        for stage in job_info.stageIds if job_info is not None else ():
            info = tracker.getStageInfo(stage)
            done += info.numCompletedTasks if info is not None else 0
    return min(done / tasks, 1.0)


def _reason(problem: Exception) -> str:
    """The exception line of the Python traceback inside; without one, the first line."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    for line in lines:
        if line.startswith(("MemoryError", "numpy._core._exceptions._ArrayMemoryError")):
            return f"not enough memory ({line}); use fewer peers or fewer cores"
    named = [line for line in lines if line.split(":")[0].isidentifier() and ": " in line]
    return (named or lines or [type(problem).__name__])[0]


# -- in processes


def run_in_processes(
    kind: JobKind, jobs: Sequence[Any], on_progress: ProgressCallback, processes: int | None = None
) -> list[Figures]:
    """The same without Spark, on this machine only; starts in a second."""
    tasks = pack_tasks(kind, jobs)
    figures: list[Figures] = [{} for _ in jobs]
    done = 0
    work = [(kind.work, [(index, jobs[index]) for index in task]) for task in tasks]
    processes = min(processes or os.cpu_count() or 1, len(tasks))
    # Forked processes would inherit locks of Arrow and numba that may be held.
    with multiprocessing.get_context("spawn").Pool(processes) if processes > 1 else nullcontext() as pool:
        for rows in map(_run_task, work) if pool is None else pool.imap_unordered(_run_task, work):
            for index, row in rows:
                figures[index] = row
            done += len(rows)
            on_progress(done)
    return figures


def _run_task(task: tuple[Callable[[Any], Figures], list[tuple[int, Any]]]) -> list[tuple[int, Figures]]:
    work, jobs = task
    return [(index, work(job)) for index, job in jobs]
