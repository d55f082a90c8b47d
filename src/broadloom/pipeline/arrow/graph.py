"""The shape of a fabric from arrays of links: degrees, parts, diameter and mean distance.

Distances come from letting many peers broadcast at once, one bit each: a peer's row has a bit for every source that
has reached it, and in one step each row takes in those of its neighbours. Exact up to `EXACT_PEERS_MAX` peers, from
every peer to every other. Above it from a few sources, and then from those farthest from them: the diameter is then a
lower bound (on random regular graphs nearly always the diameter), the mean distance an estimate.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

EXACT_PEERS_MAX = 3_000
"""Above it, distances are measured from some peers only."""

SOURCES_PER_BLOCK = 512
"""Broadcasts that are followed at the same time: so the rows stay in the processor's cache."""

BFS_SOURCES = 64
"""Of a sweep where not all peers are sources: one machine word."""

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Topology:
    peers: int
    links: int
    degrees: dict[int, int]
    """Degree -> peers that have it."""
    components: int
    diameter: int | None
    """None unless the fabric is whole."""
    distance_mean: float | None
    is_exact: bool


def component_count(a: Ints, b: Ints, peers: int) -> int:
    """How many parts cannot reach each other."""
    if peers == 0:
        return 0
    count, _ = connected_components(
        csr_matrix((np.ones(len(a), np.int8), (a, b)), shape=(peers, peers)), directed=False
    )
    return int(count)


def measure_topology(a: Ints, b: Ints, peers: int) -> Topology:
    """Measure the fabric of peers 0 to `peers` - 1 with links from a to b, each told once."""
    degree = np.bincount(np.concatenate([a, b]), minlength=peers)
    seen, count = np.unique(degree, return_counts=True)
    components = component_count(a, b, peers)
    is_exact = peers <= EXACT_PEERS_MAX
    diameter, mean = _distances(a, b, peers, is_exact) if components == 1 else (None, None)
    degrees = dict(zip(seen.tolist(), count.tolist(), strict=True)) if peers else {}
    return Topology(peers, len(a), degrees, components, diameter, mean, is_exact)


def is_regular(degrees: dict[int, int], peers: int, degree: int) -> bool:
    """Whether everyone of whom we know has `degree` links, or all others in the small regime.

    If degree times peers is odd no graph can do that, and one peer with one hole is as good as it gets.
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
    """The k-th neighbour of each peer that has so many; peers numbered by falling degree, so a column is short instead
    of padded."""
    source, target = np.concatenate([a, b]), np.concatenate([b, a])
    degree = np.bincount(source, minlength=peers)
    place = np.empty(peers, dtype=np.int64)
    place[np.argsort(-degree, kind="stable")] = np.arange(peers)
    source, target = place[source], place[target]
    order = np.argsort(source, kind="stable")
    target = target[order]
    counts = np.bincount(source, minlength=peers)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return [target[starts[: int((counts > k).sum())] + k] for k in range(int(counts.max(initial=0)))]


def _bfs(columns: list[Ints], peers: int, sources: Ints) -> tuple[int, int, Ints]:
    """Let these peers broadcast: steps to the last, the sum of all distances, and some who were reached last."""
    reached = np.zeros((peers, -(-len(sources) // 64)), dtype=np.uint64)
    bits = np.arange(len(sources))
    reached[sources, bits // 64] = np.uint64(1) << (bits % 64).astype(np.uint64)
    gathered = np.empty_like(reached)
    steps = total = 0
    last = sources
    missing = peers * len(sources) - len(sources)
    while missing:
        total += missing  # whoever is not reached yet is at least one step farther away than we knew
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
