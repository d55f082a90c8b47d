"""The fabric as a graph: components, diameter, regularity, connectivity. The only implementation of these in Broadloom.

The input is an adjacency: each peer with the neighbors it reports. A link counts only if both ends report it, because a
link known to one end may lead to a crashed peer and carries nothing; `Topology.half_links` counts those separately.

Distances come from a breadth-first search from all peers at once. Each peer holds one Python integer with a bit per
source that has reached it, so one step of every search is a few ORs per peer. Kept because it needs no packages and
takes 5 ms for 1,000 peers and 0.4 s for 10,000, where `rustworkx.distance_matrix` takes 18 ms and 14 s, and
`scipy.sparse.csgraph.shortest_path` 117 ms for 1,000. Overlays of millions of peers have compiled kernels in
`pipeline/overlay_study`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Node = TypeVar("Node", int, str)
Adjacency = Mapping[int, Collection[int]]

SOURCES_PER_BLOCK = 16_384
"""Searches that run at once. Bounds the memory: 10,000 peers need 30 MB."""
SAMPLED_SOURCES = 64
"""Searches when distances are sampled."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The measurements of one fabric at one moment."""

    peers: int
    links: int
    half_links: int
    """Neighbors that are not mutual: known to one end only, gone, or the peer itself."""
    degrees: dict[int, int]
    """Number of peers by degree, in ascending order."""
    components: int
    """1 for a connected fabric, 0 for an empty one."""
    diameter: int | None
    """Hops between the two peers farthest apart; None unless the fabric is connected."""
    mean_distance: float | None
    """Mean hops between two different peers; None unless the fabric is connected."""
    is_exact: bool
    """False if distances were sampled: the diameter is then a lower bound, the mean an estimate."""
    vertex_connectivity: int | None
    """Peers that must fail to disconnect the fabric; None if not requested."""

    @property
    def is_symmetric(self) -> bool:
        return self.half_links == 0

    @property
    def is_connected(self) -> bool:
        return self.components == 1

    def is_regular(self, degree: int) -> bool:
        """Return whether the fabric is as regular as guarantee 4 demands."""
        return self.is_symmetric and is_regular(self.degrees, self.peers, degree)


def analyze_topology(
    adjacency: Adjacency, *, with_connectivity: bool = False, exact_peers_max: int | None = None
) -> Topology:
    """Measure a fabric.

    `with_connectivity` suits a few hundred peers: its cost is quadratic. Above `exact_peers_max` peers, distances are
    sampled.
    """
    links = mutual_links(adjacency)
    link_ends = sum(map(len, links.values()))
    component_count = len(connected_components(links))
    is_exact = exact_peers_max is None or len(links) <= exact_peers_max
    diameter = mean_distance = None
    if component_count == 1:
        measure = _all_distances if is_exact else _sampled_distances
        diameter, mean_distance = measure(_neighbor_indexes(links))
    return Topology(
        peers=len(links),
        links=link_ends // 2,
        half_links=sum(len(set(neighbors)) for neighbors in adjacency.values()) - link_ends,
        degrees=dict(sorted(Counter(map(len, links.values())).items())),
        components=component_count,
        diameter=diameter,
        mean_distance=mean_distance,
        is_exact=is_exact,
        vertex_connectivity=vertex_connectivity(links) if with_connectivity else None,
    )


# -- adjacencies


def mutual_links(adjacency: Adjacency) -> dict[int, list[int]]:
    """Keep the links that both ends report, sorted, so that equal fabrics give equal results."""
    known = {peer: set(neighbors) for peer, neighbors in adjacency.items()}
    empty: set[int] = set()
    return {
        peer: sorted(other for other in known[peer] if other != peer and peer in known.get(other, empty))
        for peer in sorted(known)
    }


def link_adjacency(peers: Iterable[Node], links: Iterable[tuple[Node, Node]]) -> dict[Node, list[Node]]:
    """Build an adjacency from links. An end that is not among `peers` becomes a peer."""
    adjacency: dict[Node, list[Node]] = {peer: [] for peer in peers}
    for a, b in links:
        adjacency.setdefault(a, []).append(b)
        adjacency.setdefault(b, []).append(a)
    return adjacency


def symmetric_links(adjacency: Adjacency) -> dict[int, list[int]]:
    """Keep the links that either end reports. A neighbor without an entry of its own becomes a peer."""
    return link_adjacency(adjacency, ((peer, other) for peer, near in adjacency.items() for other in near))


# -- components


def connected_components(links: Mapping[Node, Collection[Node]]) -> list[list[Node]]:
    """Return the components of a symmetric adjacency, largest first, each in ascending order."""
    unseen = dict.fromkeys(links)
    components: list[list[Node]] = []
    while unseen:
        first = next(iter(unseen))
        del unseen[first]
        component = [first]
        for peer in component:  # grows during the iteration
            for other in links[peer]:
                if other in unseen:
                    del unseen[other]
                    component.append(other)
        components.append(sorted(component))
    return sorted(components, key=len, reverse=True)


def component_labels(peers: int, ends: npt.NDArray[np.int64], other_ends: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the component number of each of the peers 0 to `peers` - 1. For arrays of links; needs numpy.

    Every peer takes the lowest label among its neighbors, and then the label of that peer, until nothing changes.
    """
    import numpy as np

    labels = np.arange(peers)
    while True:
        lowest = np.minimum(labels[ends], labels[other_ends])
        changed = labels.copy()
        np.minimum.at(changed, ends, lowest)
        np.minimum.at(changed, other_ends, lowest)
        changed = changed[changed]
        if np.array_equal(changed, labels):
            return np.asarray(np.unique(labels, return_inverse=True)[1])
        labels = changed


# -- regularity


def target_degree(peers: int, degree: int) -> int:
    """Return the links each peer should have: `degree`, or all the others in a full mesh."""
    return max(0, min(degree, peers - 1))


def is_regular(degrees: Mapping[int, int], peers: int, degree: int) -> bool:
    """Return whether these peers (`degrees`: number of peers by degree) of a fabric of `peers` have all their links.

    If degree times peers is odd, no graph is regular, and one peer with one free slot is allowed.
    """
    target = target_degree(peers, degree)
    allowed = target * peers % 2
    return all(has == target or (has == target - 1 and count <= allowed) for has, count in degrees.items() if count)


def free_slots(adjacency: Adjacency, degree: int) -> dict[int, int]:
    """Return the missing links by peer; each component is judged by itself.

    A neighbor without an entry of its own belongs to the component but is not reported. The one slot that stays free
    because degree times peers is odd does not count.
    """
    missing: dict[int, int] = {}
    if all(len(neighbors) >= degree for neighbors in adjacency.values()):
        return missing
    for component in connected_components(symmetric_links(adjacency)):
        target = target_degree(len(component), degree)
        here = {peer: target - len(adjacency[peer]) for peer in component if peer in adjacency}
        here = {peer: count for peer, count in here.items() if count > 0}
        if sum(here.values()) > target * len(component) % 2:
            missing |= here
    return missing


# -- distances


def diameter(links: Mapping[Node, Collection[Node]]) -> int:
    """Return the longest shortest path within any component of a symmetric adjacency, in hops."""
    return _all_distances(_neighbor_indexes(links))[0]


def _neighbor_indexes(links: Mapping[Node, Collection[Node]]) -> list[list[int]]:
    index_of = {peer: index for index, peer in enumerate(links)}
    return [[index_of[other] for other in near] for near in links.values()]


def _all_distances(neighbors: Sequence[Sequence[int]]) -> tuple[int, float]:
    peers = len(neighbors)
    depth = distance_sum = 0
    for first in range(0, peers, SOURCES_PER_BLOCK):
        block_depth, block_sum, _ = _search(neighbors, range(first, min(first + SOURCES_PER_BLOCK, peers)))
        depth, distance_sum = max(depth, block_depth), distance_sum + block_sum
    return depth, distance_sum / max(peers * (peers - 1), 1)


def _sampled_distances(neighbors: Sequence[Sequence[int]]) -> tuple[int, float]:
    """Search from a sample, then from the peers farthest from it. Random regular graphs rarely have a longer path."""
    peers = len(neighbors)
    sources = sorted({index * (peers - 1) // (SAMPLED_SOURCES - 1) for index in range(SAMPLED_SOURCES)})
    depth, distance_sum, farthest = _search(neighbors, sources)
    return max(depth, _search(neighbors, farthest)[0]), distance_sum / max(len(sources) * (peers - 1), 1)


def _search(neighbors: Sequence[Sequence[int]], sources: Sequence[int]) -> tuple[int, int, list[int]]:
    """Search breadth-first from all sources; return the depth, the sum of the distances, and peers reached last."""
    reached = [0] * len(neighbors)
    for bit, source in enumerate(sources):
        reached[source] = 1 << bit
    everything = (1 << len(sources)) - 1
    depth = distance_sum = 0
    farthest = list(sources)
    unreached = len(sources) * (len(neighbors) - 1)
    while unreached:
        after = []
        for bits, near in zip(reached, neighbors, strict=True):
            if bits != everything:
                for other in near:
                    bits |= reached[other]
            after.append(bits)
        left = len(sources) * len(neighbors) - sum(map(int.bit_count, after))
        if left == unreached:
            break  # the rest is in other components
        distance_sum += unreached  # a peer that was not reached yet is at least one hop farther away
        depth += 1
        if not left:
            changed = (peer for peer, bits in enumerate(reached) if bits != everything)
            farthest = [peer for peer, _ in zip(changed, range(SAMPLED_SOURCES), strict=False)]
        reached, unreached = after, left
    return depth, distance_sum, farthest


def diameter_bounds(peers: int, degree: int) -> tuple[int, int]:
    """Return the diameters between which almost every random regular graph of this size lies.

    The theorem of Bollobas and Fernandez de la Vega, which the SWAN paper (III-A) tabulates for degree 4. It holds for
    large graphs; for a few peers the bounds are narrowed to what is possible, and a full mesh has exactly one value.
    """
    if peers < 1 or degree < 3:
        raise ValueError(f"no random regular graph has {peers} peers of degree {degree}")
    if peers <= degree + 1:
        only = min(peers - 1, 1)
        return only, only

    def log(x: float) -> float:
        return math.log(x, degree - 1)

    log_floor = 0  # in integers: rounding must not put a power of degree - 1 below itself
    while (degree - 1) ** (log_floor + 1) <= peers:
        log_floor += 1
    lower = log_floor + math.floor(log(math.log(peers)) - log(6 * degree / (degree - 2))) + 1
    upper = math.ceil(log(peers) + log(math.log(peers)) + log(2 * degree)) + 1
    return max(lower, 2), min(upper, peers - 1)


# -- connectivity


def vertex_connectivity(adjacency: Adjacency) -> int:
    """Return how many peers must fail before the rest is disconnected (or a single peer). Needs networkx."""
    import networkx as nx

    links = mutual_links(adjacency)
    return int(nx.node_connectivity(nx.Graph(links))) if links else 0
