"""Breadth-first search of one fabric over many tasks: the links stay in blocks with the tasks, only the frontier moves.

In each step, every task gets two bits per peer of the whole fabric: whether it was reached, and whether it was reached
in the last step. For its own unreached peers, the task checks whether a neighbor was reached in the last step. So a
step exchanges a quarter of a byte per peer (2.5 MB for ten million). The driver holds one byte per peer, a task one
block at a time.

Growing is one task, because each joiner depends on all previous ones. It needs 4r bytes per peer.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from broadloom.pipeline.overlay_study.bfs import UNREACHED, BfsResult
from broadloom.pipeline.overlay_study.grow import grow
from broadloom.pipeline.overlay_study.join_strategies import JoinStrategy
from broadloom.pipeline.overlay_study.kernels import NO_PEER, Fabric, compiled
from broadloom.pipeline.overlay_study.random_source import new_rng, random_below

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

TASK_PEERS_MAX = 50_000_000
"""Larger fabrics are distributed: searching in one task would take 150 bytes per peer."""
BLOCK_PEERS = 1 << 16
"""Peers per row of the DataFrame; a multiple of 8, so that blocks are whole bytes."""
BFS_SOURCES = 4
"""Searches, each from a peer that was farthest in the previous one."""
BLOCKS_DDL = "first long, neighbors binary"

Bytes = npt.NDArray[np.uint8]


def grow_blocks(
    spark: "SparkSession",
    peers: int,
    degree: int,
    seed: int = 1,
    strategy: JoinStrategy = JoinStrategy.UNIFORM_EDGE,
    choices: int = 1,
) -> "DataFrame":
    """A fabric as rows of BLOCK_PEERS peers, distributed over all cores and cached there."""
    grown = spark.range(0, 1, 1, numPartitions=1).mapInArrow(
        partial(_grown_blocks, peers, degree, seed, strategy, choices), BLOCKS_DDL
    )
    blocks = -(-peers // BLOCK_PEERS)
    return grown.repartition(min(blocks, 2 * spark.sparkContext.defaultParallelism)).persist()


def distributed_distances(
    spark: "SparkSession", blocks: "DataFrame", peers: int, degree: int, source: int, on_step: Callable[[int], None]
) -> Bytes:
    """Distance from one peer to each: the same as `bfs.distances_from`."""
    distances = np.full(peers, UNREACHED, dtype=np.uint8)
    distances[source] = 0
    step = 0
    while True:
        frontier = spark.sparkContext.broadcast(
            (_bits(distances != UNREACHED), _bits(distances == min(step, UNREACHED - 1)))
        )
        found = blocks.mapInArrow(
            partial(_advance_frontier, frontier, peers, degree), "first long, newly_reached binary"
        ).toArrow()
        frontier.destroy()
        step += 1
        for first, newly_reached in zip(found["first"].to_pylist(), found["newly_reached"].to_pylist(), strict=True):
            new = np.unpackbits(np.frombuffer(newly_reached, np.uint8), bitorder="little").view(np.bool_)
            block = distances[first : first + BLOCK_PEERS]
            block[new[: len(block)]] = min(step, UNREACHED - 1)
        if found.num_rows == 0:
            return distances
        on_step(step)


def distributed_bfs(
    spark: "SparkSession",
    peers: int,
    degree: int,
    seed: int,
    strategy: JoinStrategy,
    choices: int,
    on_step: Callable[[int], None],
) -> BfsResult:
    """Search a distributed fabric, first from a random peer."""
    blocks = grow_blocks(spark, peers, degree, seed, strategy, choices)
    try:
        source = int(random_below(new_rng(seed, peers), peers))
        farthest, distance_sum, unreached = 0, 0, 0
        for _ in range(BFS_SOURCES):
            counts = np.zeros(UNREACHED + 1, dtype=np.int64)
            distances = distributed_distances(spark, blocks, peers, degree, source, on_step)
            counts += np.bincount(distances, minlength=UNREACHED + 1)
            distance_sum += int(counts[:UNREACHED] @ np.arange(UNREACHED))
            unreached += int(counts[UNREACHED])
            steps = int(np.flatnonzero(counts[:UNREACHED])[-1])
            farthest = max(farthest, steps)
            source = int(np.flatnonzero(distances == steps)[-1])
        return BfsResult(farthest, distance_sum, unreached, BFS_SOURCES)
    finally:
        blocks.unpersist()


def _bits(which: npt.NDArray[np.bool_]) -> Bytes:
    return np.packbits(which, bitorder="little")


# -- in tasks


def _grown_blocks(
    peers: int, degree: int, seed: int, strategy: JoinStrategy, choices: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            fabric = grow(peers, degree, seed, strategy, choices)
            for first in range(0, peers, BLOCK_PEERS):
                rows = fabric[first : first + BLOCK_PEERS].tobytes()
                yield pa.RecordBatch.from_pydict(
                    {"first": pa.array([first], pa.int64()), "neighbors": pa.array([rows], pa.binary())}
                )


def _advance_frontier(
    frontier: "Broadcast[tuple[Bytes, Bytes]]", peers: int, degree: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    reached, frontier_bits = frontier.value
    for batch in batches:
        firsts, found = [], []
        for first, rows in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            fabric = np.frombuffer(rows.as_buffer(), np.int32).reshape(-1, degree)
            newly_reached = np.zeros(-(-len(fabric) // 8), dtype=np.uint8)
            if _pull(fabric, first, reached, frontier_bits, newly_reached):
                firsts.append(first)
                found.append(newly_reached.tobytes())
        yield pa.RecordBatch.from_pydict(
            {"first": pa.array(firsts, pa.int64()), "newly_reached": pa.array(found, pa.binary())}
        )


@compiled
def _pull(fabric: Fabric, first: int, reached: Bytes, frontier_bits: Bytes, newly_reached: Bytes) -> int:
    """Mark the unreached peers with a neighbor in the frontier; returns their number."""
    count = 0
    for row in range(len(fabric)):
        peer = first + row
        if reached[peer >> 3] >> (peer & 7) & 1:
            continue
        for each in fabric[row]:
            if each != NO_PEER and frontier_bits[each >> 3] >> (each & 7) & 1:
                newly_reached[row >> 3] |= np.uint8(1 << (row & 7))
                count += 1
                break
    return count
