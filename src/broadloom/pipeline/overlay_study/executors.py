"""Many jobs at once: as tasks of Spark, or in processes of this machine.

The rule: a job's figures do not depend on where it ran, or beside which others. Small jobs are put together into tasks
that are worth the trouble of starting one, large ones come first, so that no core waits for the last one for long.
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
"""A task should take about so long at least: starting one costs some hundredths of a second."""
TASKS_MIN = 8
"""Work is shared out among so many at least, so that progress can be seen."""
POLL_INTERVAL_S = 0.2
"""How often progress is looked at."""

ProgressCallback = Callable[[int], None]
"""Told how many jobs are done."""

_ARROW = {"long": pa.int64(), "double": pa.float64()}


class StudyTaskError(BroadloomError):
    """A task did not come to its end; says why."""


def pack_tasks(kind: JobKind, jobs: Sequence[Any]) -> list[list[int]]:
    """Tasks, as the places of their jobs: the most costly first."""
    costs = [kind.cost_s(job) for job in jobs]
    worth_s = min(TASK_S, sum(costs) / TASKS_MIN)
    tasks: list[list[int]] = []
    filled_s = worth_s
    for place in sorted(range(len(jobs)), key=lambda place: -costs[place]):
        if filled_s >= worth_s:
            tasks.append([])
            filled_s = 0.0
        tasks[-1].append(place)
        filled_s += costs[place]
    return tasks


# -- on Spark


def run_on_spark(
    spark: "SparkSession", kind: JobKind, jobs: Sequence[Any], on_progress: ProgressCallback
) -> list[Figures]:
    """The figures of each job, in the order of the jobs."""
    tasks = pack_tasks(kind, jobs)
    ddl = ", ".join(["place long", *(f"{name} {type_}" for name, type_ in kind.columns.items())])
    work = partial(_run_batches, kind, [[(place, jobs[place]) for place in task] for task in tasks])
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
            raise StudyTaskError(f"a task of Spark failed: {_reason(problem)}") from problem
    figures: list[Figures] = [{} for _ in jobs]
    for row in table.to_pylist():
        figures[row.pop("place")] = row
    on_progress(len(jobs))
    return figures


def _run_batches(
    kind: JobKind, tasks: list[list[tuple[int, Any]]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task of Spark: the numbers that come in say which tasks these are."""
    schema = pa.schema([("place", pa.int64()), *((name, _ARROW[type_]) for name, type_ in kind.columns.items())])
    for batch in batches:
        for task in batch.column(0).to_pylist():
            rows = [{"place": place, **kind.work(job)} for place, job in tasks[task]]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _fraction_done(context: "SparkContext", group: str, tasks: int) -> float:
    tracker = context.statusTracker()
    done = 0
    for job in tracker.getJobIdsForGroup(group):
        told = tracker.getJobInfo(job)
        for stage in told.stageIds if told is not None else ():
            info = tracker.getStageInfo(stage)
            done += info.numCompletedTasks if info is not None else 0
    return min(done / tasks, 1.0)


def _reason(problem: Exception) -> str:
    """The last line of a Python traceback inside says what happened; else the first line of all."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    for line in lines:
        if line.startswith(("MemoryError", "numpy._core._exceptions._ArrayMemoryError")):
            return f"not enough memory ({line}); name fewer peers, or use fewer cores at once"
    named = [line for line in lines if line.split(":")[0].isidentifier() and ": " in line]
    return (named or lines or [type(problem).__name__])[0]


# -- in processes


def run_in_processes(
    kind: JobKind, jobs: Sequence[Any], on_progress: ProgressCallback, processes: int | None = None
) -> list[Figures]:
    """The same without Spark and its Java: what starts in a second, on this machine only."""
    tasks = pack_tasks(kind, jobs)
    figures: list[Figures] = [{} for _ in jobs]
    done = 0
    work = [(kind.work, [(place, jobs[place]) for place in task]) for task in tasks]
    processes = min(processes or os.cpu_count() or 1, len(tasks))
    # Forked processes would share locks of Arrow and numba that somebody holds just then.
    with multiprocessing.get_context("spawn").Pool(processes) if processes > 1 else nullcontext() as pool:
        for rows in map(_run_task, work) if pool is None else pool.imap_unordered(_run_task, work):
            for place, row in rows:
                figures[place] = row
            done += len(rows)
            on_progress(done)
    return figures


def _run_task(task: tuple[Callable[[Any], Figures], list[tuple[int, Any]]]) -> list[tuple[int, Figures]]:
    work, jobs = task
    return [(place, work(job)) for place, job in jobs]
