"""Arrow functions over the parts of a frame, so that a channel of any size is judged in tasks of bounded memory.

`in_chunks` hands over what comes, so many rows at a time. `in_buckets` first brings rows together that belong together:
all rows with the same bucket number are in one call. Whoever numbers the buckets sees that none is too large.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CHUNK_ROWS = 1_000_000
BUCKET_ROWS = 500_000
"""What a bucket should hold, about: some 100 MB while polars works on it."""

Function = Callable[[pa.Table], pa.Table]


def map_chunks(frame: "DataFrame", function: Function, ddl: str, *, rows_max: int = CHUNK_ROWS) -> "DataFrame":
    """Run a function over the rows as they come."""

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
    """Run a function once over each bucket; `bucket` is its number, from 0 on."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        if held:
            yield from function(pa.Table.from_batches(held)).to_batches()

    return frame.repartitionById(buckets, bucket).mapInArrow(run, ddl)


def bucket_count(frame: "DataFrame", rows: int) -> int:
    """How many buckets for so many rows: at least one for each core, unless there is next to nothing to do."""
    cores = frame.sparkSession.sparkContext.defaultParallelism
    return cores if rows <= cores * BUCKET_ROWS else math.ceil(rows / BUCKET_ROWS / cores) * cores


def hash_bucket(count: int, *names: str) -> "Column":
    """A number below `count`, the same for the same values."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.pmod(F.xxhash64(*names), F.lit(count)).cast("int")
