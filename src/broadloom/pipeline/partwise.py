"""Arrow functions over parts of a frame: rows that belong together meet in one part, and a part fits a task.

The rule: no sorting and no group of unbounded size. Where a question is about single messages, the rows of a message
are together if the frame is split by the message's name, and the number of parts follows from the number of rows; so
a channel of any size needs the memory of one part for each core.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITION_ROWS = 1_500_000
"""Rows that are handed to a function at once, about. One row of a message takes some 150 bytes in Python."""

SMALL_ROWS = 50_000
"""So few are not worth a second task."""

Function = Callable[[pa.Table], pa.Table]


def map_by_key(
    frame: "DataFrame", keys: tuple[str, ...], function: Function, schema: pa.Schema, rows: int
) -> "DataFrame":
    """Run a function over parts of the frame; rows with the same keys are in the same part. `rows`: about how many."""
    cores = frame.sparkSession.sparkContext.defaultParallelism
    parts = 1 if rows <= SMALL_ROWS else max(cores, math.ceil(rows / PARTITION_ROWS))
    return frame.repartition(parts, *keys).mapInArrow(_on_whole_partition(function), spark_schema(schema))


def map_by_channel(frame: "DataFrame", function: Function, schema: pa.Schema) -> "DataFrame":
    """Run a function over all rows of each channel, which have to fit a task."""
    return frame.groupBy("channel").applyInArrow(function, spark_schema(schema))


def cogroup_by_channel(
    left: "DataFrame", right: "DataFrame", function: Callable[[pa.Table, pa.Table], pa.Table], schema: pa.Schema
) -> "DataFrame":
    """Run a function over the rows of two frames of each channel.

    The columns on the right get names of their own, in Spark's eyes. Otherwise, if both frames come from the same one,
    Spark 4.3 takes columns of the left for those of the right, thinks the right ones unused, and leaves them out. The
    metadata keeps it from undoing that.
    """
    from pyspark.sql import functions as F  # noqa: N812

    apart = right.select(*(F.col(f"`{name}`").alias(name, metadata={"side": "right"}) for name in right.columns))
    together = left.groupBy("channel").cogroup(apart.groupBy("channel"))
    return together.applyInArrow(function, spark_schema(schema))


def spark_schema(schema: pa.Schema) -> str:
    from broadloom.pipeline.table import spark_type

    return ", ".join(f"`{each.name}` {spark_type(each.type)}" for each in schema)


def _on_whole_partition(function: Function) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        if held:
            yield from function(pa.Table.from_batches(held)).to_batches()

    return run
