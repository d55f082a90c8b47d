"""Runs Arrow functions over partitions of a DataFrame: rows with the same keys are in one partition that fits a task.

No sorting, and no group of unbounded size. For questions about single messages the DataFrame is partitioned by message,
and the number of partitions follows from the number of rows; so a channel of any size needs the memory of one partition
per core.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITION_ROWS = 1_500_000
"""Approximate rows per call. A row about a message takes some 150 bytes in Python."""

SMALL_ROWS = 50_000
"""Fewer rows are not worth a second task."""

Function = Callable[[pa.Table], pa.Table]


def map_by_key(
    frame: "DataFrame", keys: tuple[str, ...], function: Function, schema: pa.Schema, rows: int
) -> "DataFrame":
    """Run a function over partitions; rows with the same keys are in the same one. `rows` is approximate."""
    cores = frame.sparkSession.sparkContext.defaultParallelism
    partitions = 1 if rows <= SMALL_ROWS else max(cores, math.ceil(rows / PARTITION_ROWS))
    return frame.repartition(partitions, *keys).mapInArrow(_on_whole_partition(function), spark_schema(schema))


def map_by_channel(frame: "DataFrame", function: Function, schema: pa.Schema) -> "DataFrame":
    """Run a function over all rows of each channel, which must fit a task."""
    return frame.groupBy("channel").applyInArrow(function, spark_schema(schema))


def cogroup_by_channel(
    left: "DataFrame", right: "DataFrame", function: Callable[[pa.Table, pa.Table], pa.Table], schema: pa.Schema
) -> "DataFrame":
    """Run a function over the rows of two DataFrames for each channel.

    Columns on the right are aliased. Otherwise, if both come from the same DataFrame, Spark 4.3 mistakes columns of the
    left for those of the right and prunes the right ones as unused. The metadata keeps it from removing the alias.
    """
    from pyspark.sql import functions as F  # noqa: N812

    aliased = right.select(*(F.col(f"`{name}`").alias(name, metadata={"side": "right"}) for name in right.columns))
    grouped = left.groupBy("channel").cogroup(aliased.groupBy("channel"))
    return grouped.applyInArrow(function, spark_schema(schema))


def spark_schema(schema: pa.Schema) -> str:
    from broadloom.pipeline.table import spark_type

    return ", ".join(f"`{each.name}` {spark_type(each.type)}" for each in schema)


def _on_whole_partition(function: Function) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        if held:
            yield from function(pa.Table.from_batches(held)).to_batches()

    return run
