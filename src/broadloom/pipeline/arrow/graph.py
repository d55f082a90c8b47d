"""Degrees, components, diameter and mean distance of a fabric given as arrays of links.

Distances come from a bit-parallel BFS: each peer has one bit per source that has reached it, and in each step takes
over the bits of its neighbors. Up to `EXACT_PEERS_MAX` peers every peer is a source, and distances are exact. Above,
the search starts from a few sources and then from the peers farthest from them: the diameter is a lower bound (on
random regular graphs nearly always exact), the mean distance an estimate.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

EXACT_PEERS_MAX = 3_000
"""Above this, distances are measured from some peers only."""

SOURCES_PER_BLOCK = 512
"""Sources searched at the same time: the bit rows then fit into the CPU cache."""

BFS_SOURCES = 64
"""Sources if not all peers are: one machine word."""

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Topology:
    peers: int
    links: int
    degrees: dict[int, int]
    """Degree -> number of peers."""
    components: int
    diameter: int | None
    """None unless the fabric is connected."""
    distance_mean: float | None
    is_exact: bool


def component_count(a: Ints, b: Ints, peers: int) -> int:
    if peers == 0:
        return 0
    count, _ = connected_components(
        csr_matrix((np.ones(len(a), np.int8), (a, b)), shape=(peers, peers)), directed=False
    )
    return int(count)


def measure_topology(a: Ints, b: Ints, peers: int) -> Topology:
    """Measure the fabric of peers 0 to `peers` - 1 with links from a to b, each given once."""
    degree = np.bincount(np.concatenate([a, b]), minlength=peers)
    seen, count = np.unique(degree, return_counts=True)
    components = component_count(a, b, peers)
    is_exact = peers <= EXACT_PEERS_MAX
    diameter, mean = _distances(a, b, peers, is_exact) if components == 1 else (None, None)
    degrees = dict(zip(seen.tolist(), count.tolist(), strict=True)) if peers else {}
    return Topology(peers, len(a), degrees, components, diameter, mean, is_exact)


def is_regular(degrees: dict[int, int], peers: int, degree: int) -> bool:
    """Whether all known peers have `degree` links; in a full mesh, links to all others.

    If degree times peers is odd no graph is regular, and one peer with one free slot is accepted.
    """
    wanted = min(degree, peers - 1)
    spare = 1 if wanted * peers % 2 else 0
    return all(
        has == wanted or (has == wanted - 1 and count <= spare) for has, count in degrees.items() if count and peers > 0
    )


def _distances(a: Ints, b: Ints, peers: int, is_exact: bool) -> tuple[int, float]:
    columns = _columns(a, b, peers)
    if is_exact:
        blocks = [
            np.arange(first, min(first + SOURCES_PER_BLOCK, peers)) for first in range(0, peers, SOURCES_PER_BLOCK)
        ]
        results = [_bfs(columns, peers, block) for block in blocks]
        total = sum(result[1] for result in results)
        return max(result[0] for result in results), total / max(peers * (peers - 1), 1)
    first = np.linspace(0, peers - 1, BFS_SOURCES).astype(np.int64)
    steps, total, last = _bfs(columns, peers, first)
    again, _, _ = _bfs(columns, peers, last)
    return max(steps, again), total / (len(first) * (peers - 1))


def _columns(a: Ints, b: Ints, peers: int) -> list[Ints]:
    """The k-th neighbor of each peer that has one. Peers are numbered by falling degree, so columns need no padding."""
    source, target = np.concatenate([a, b]), np.concatenate([b, a])
    degree = np.bincount(source, minlength=peers)
    rank = np.empty(peers, dtype=np.int64)
    rank[np.argsort(-degree, kind="stable")] = np.arange(peers)
    source, target = rank[source], rank[target]
    order = np.argsort(source, kind="stable")
    target = target[order]
    counts = np.bincount(source, minlength=peers)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return [target[starts[: int((counts > k).sum())] + k] for k in range(int(counts.max(initial=0)))]


def _bfs(columns: list[Ints], peers: int, sources: Ints) -> tuple[int, int, Ints]:
    """Search from these peers: steps to the last peer, sum of all distances, and some of the peers reached last."""
    reached = np.zeros((peers, -(-len(sources) // 64)), dtype=np.uint64)
    bits = np.arange(len(sources))
    reached[sources, bits // 64] = np.uint64(1) << (bits % 64).astype(np.uint64)
    gathered = np.empty_like(reached)
    steps = total = 0
    last = sources
    missing = peers * len(sources) - len(sources)
    while missing:
        total += missing  # each pair not reached yet is at least one step farther apart
        steps += 1
        after = reached.copy()
        for column in columns:
            rows = len(column)
            np.take(reached, column, axis=0, out=gathered[:rows], mode="clip")  # the default copies through a buffer
            np.bitwise_or(after[:rows], gathered[:rows], out=after[:rows])
        still = peers * len(sources) - int(np.bitwise_count(after).sum(dtype=np.int64))
        if not still:
            last = np.flatnonzero((after != reached).any(axis=1))[:BFS_SOURCES]
        reached, missing = after, still
    return steps, total, last
