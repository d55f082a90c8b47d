"""Runs Arrow functions over chunks or buckets of a DataFrame, so that tasks have bounded memory.

`map_chunks` passes rows as they come, in chunks of limited size. `map_buckets` shuffles first: all rows with the same
bucket number are in one call. The caller chooses the numbers so that no bucket is too large.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CHUNK_ROWS = 1_000_000
BUCKET_ROWS = 500_000
"""Approximate rows per bucket: some 100 MB while polars works on it."""

Function = Callable[[pa.Table], pa.Table]


def map_chunks(frame: "DataFrame", function: Function, ddl: str, *, rows_max: int = CHUNK_ROWS) -> "DataFrame":
    """Run a function over chunks of rows as they come."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            if batch.num_rows:
                held.append(batch)
                rows += batch.num_rows
            if rows >= rows_max:
                yield from function(pa.Table.from_batches(held)).to_batches()
                held, rows = [], 0
        if held:
            yield from function(pa.Table.from_batches(held)).to_batches()

    return frame.mapInArrow(run, ddl)


def map_buckets(frame: "DataFrame", bucket: "Column", buckets: int, function: Function, ddl: str) -> "DataFrame":
    """Run a function once per bucket; `bucket` is its number, from 0."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        if held:
            yield from function(pa.Table.from_batches(held)).to_batches()

    return frame.repartitionById(buckets, bucket).mapInArrow(run, ddl)


def bucket_count(frame: "DataFrame", rows: int) -> int:
    """Number of buckets for this number of rows: a multiple of the number of cores."""
    cores = frame.sparkSession.sparkContext.defaultParallelism
    return cores if rows <= cores * BUCKET_ROWS else math.ceil(rows / BUCKET_ROWS / cores) * cores


def hash_bucket(count: int, *names: str) -> "Column":
    """A number below `count`, equal for equal values."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.pmod(F.xxhash64(*names), F.lit(count)).cast("int")
