"""Runs tasks on Spark: a task is a picklable description, and one partition of a frame.

`run_tasks` runs independent tasks. `exchange` runs tasks that send blobs to destinations, and then one task per
destination that gets all its blobs: Spark's shuffle moves them, and retries what is lost with a worker.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Blob(NamedTuple):
    destination: int
    name: str
    data: bytes


Blobs = dict[str, list[bytes]]
"""What a destination gets, by name."""

_BLOBS = "destination INT, name STRING, data BINARY"
_RESULT = "result BINARY"
BLOBS_PER_BATCH = 16
"""A blob may have megabytes, and a batch of them is in memory at once."""


def attempt() -> int:
    """A number that no other attempt of any task of this application has."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.taskAttemptId()


def run_tasks(spark: "SparkSession", function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
    """Call the function with each task, on the workers."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for index in _indices(batches):
            yield _result(function(tasks[index]))

    return _collect(_frame_of(spark, len(tasks)).mapInArrow(run, _RESULT))


def exchange(
    spark: "SparkSession",
    send: Callable[[Any], Iterable[Blob]],
    tasks: Sequence[Any],
    receive: Callable[[Any, Blobs], Any],
    destinations: Sequence[Any],
) -> list[Any]:
    """Call `send` with each task, and then `receive` with each destination and the blobs sent to it."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for index in _indices(batches):
            for blob in send(tasks[index]):
                columns = [
                    pa.array([blob.destination], pa.int32()),
                    pa.array([blob.name], pa.string()),
                    pa.array([blob.data], pa.binary()),
                ]
                yield pa.RecordBatch.from_arrays(columns, list(Blob._fields))

    def gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        got: dict[int, Blobs] = {}
        for batch in batches:
            for blob in (Blob(*row.values()) for row in batch.to_pylist()):
                got.setdefault(blob.destination, {}).setdefault(blob.name, []).append(blob.data)
        for index in sorted(got):
            yield _result(receive(destinations[index], got.pop(index)))

    sent = _frame_of(spark, len(tasks)).mapInArrow(run, _BLOBS)
    return _collect(sent.repartitionById(len(destinations), "destination").mapInArrow(gather, _RESULT))


def _frame_of(spark: "SparkSession", tasks: int) -> "DataFrame":
    """One row and one partition per task."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BLOBS_PER_BATCH))
    return spark.range(0, tasks, 1, tasks)


def _indices(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch["id"].to_pylist()


def _result(value: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(value)], pa.binary())], ["result"])


def _collect(frame: "DataFrame") -> list[Any]:
    return [pickle.loads(each) for each in frame.toArrow()["result"].to_pylist()]
