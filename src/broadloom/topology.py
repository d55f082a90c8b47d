"""What a fabric looks like as a graph: how regular, how whole, how far across.

The input is what every peer says of itself: its number, and the numbers of its neighbours. A link counts
only if both its ends know it. What one end alone believes in may be a dead peer or an unfinished handshake,
carries nothing, and would make the fabric look better than it is; it is counted apart, as a half link.

Diameter and mean distance are exact, from every peer to every other, because promise 4 is about the worst
pair and not about a sample of them. `diameter_bounds` says what to expect of a random regular graph.
Needs the `sim` extra (numpy 2, networkx).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import networkx as nx
import numpy as np
import numpy.typing as npt

Adjacency = Mapping[int, Collection[int]]

# Peers whose broadcasts are followed at the same time. More would make fewer numpy calls, fewer keep the rows
# in the processor's cache: at 20,000 peers this is three arrays of 1.3 MB, twice as fast as all at once.
SOURCES_PER_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Topology:
    """The measurements of one fabric at one moment."""

    peers: int
    links: int
    half_links: int
    """Neighbours that are not mutual: known by one end only, gone, or the peer itself."""
    degrees: dict[int, int]
    """How many peers have how many links: degree -> peers, by rising degree."""
    components: int
    """Parts that cannot reach each other; 1 for a fabric that is whole, 0 for an empty one."""
    diameter: int | None
    """Steps between the two peers farthest apart; None unless the fabric is whole."""
    mean_distance: float | None
    """Steps between two different peers on average; None unless the fabric is whole."""
    vertex_connectivity: int | None
    """How many peers must go to tear the fabric apart; None if it was not asked for."""

    @property
    def is_symmetric(self) -> bool:
        """Whether every link is known by both its ends."""
        return self.half_links == 0

    @property
    def is_connected(self) -> bool:
        """Whether every peer can reach every other."""
        return self.components == 1

    def is_regular(self, degree: int) -> bool:
        """Whether the fabric is as regular as promise 4 demands.

        Every peer has exactly `degree` links, or all the others in the small regime. If `degree` times the
        number of peers is odd, no graph can do that, and one peer with one hole is as good as it gets.
        """
        if self.peers == 0:
            return True
        wanted = min(degree, self.peers - 1)
        expected = {wanted: self.peers}
        if wanted * self.peers % 2:
            expected = {wanted - 1: 1, wanted: self.peers - 1}
        return self.is_symmetric and self.degrees == expected


def analyze_topology(adjacency: Adjacency, *, with_connectivity: bool = False) -> Topology:
    """Measure a fabric; `with_connectivity` is for some hundreds of peers, its cost is quadratic."""
    links = mutual_links(adjacency)
    link_ends = sum(map(len, links.values()))
    parts = components(links)
    diameter, mean_distance = _distances(links) if len(parts) == 1 else (None, None)
    return Topology(
        peers=len(links),
        links=link_ends // 2,
        half_links=sum(len(set(neighbours)) for neighbours in adjacency.values()) - link_ends,
        degrees=dict(sorted(Counter(map(len, links.values())).items())),
        components=len(parts),
        diameter=diameter,
        mean_distance=mean_distance,
        vertex_connectivity=vertex_connectivity(links) if with_connectivity else None,
    )


def mutual_links(adjacency: Adjacency) -> dict[int, list[int]]:
    """Keep the links both ends know, in rising order, so that equal fabrics give equal answers."""
    known = {peer: set(neighbours) for peer, neighbours in adjacency.items()}
    nobody: set[int] = set()
    return {
        peer: sorted(other for other in known[peer] if other != peer and peer in known.get(other, nobody))
        for peer in sorted(known)
    }


def components(adjacency: Adjacency) -> list[list[int]]:
    """Return the parts of a fabric that cannot reach each other, largest first, each in rising order."""
    links = mutual_links(adjacency)
    unseen = set(links)
    parts = []
    for first in links:
        if first not in unseen:
            continue
        unseen.remove(first)
        part = [first]
        for peer in part:  # grows while we walk along it
            fresh = [other for other in links[peer] if other in unseen]
            unseen.difference_update(fresh)
            part += fresh
        parts.append(sorted(part))
    return sorted(parts, key=len, reverse=True)


def vertex_connectivity(adjacency: Adjacency) -> int:
    """Return how many peers must go before the rest falls apart (or only one is left).

    networkx looks for disjoint paths from one peer of least degree only, gives each search up once it has
    found as many as the weakest pair so far, and reuses one flow network for all of them.
    """
    links = mutual_links(adjacency)
    return int(nx.node_connectivity(nx.Graph(links))) if links else 0


def diameter_bounds(peers: int, degree: int) -> tuple[int, int]:
    """Return between which diameters almost every random regular graph of this size lies.

    The theorem of Bollobas and Fernandez de la Vega, which the SWAN paper (III-A) tabulates for degree 4.
    It speaks of large graphs. For a few peers its bounds are narrowed to what is possible at all, and in the
    small regime, where everyone is linked to everyone, there is nothing left to chance.
    """
    if peers < 1 or degree < 3:
        raise ValueError(f"no random regular graph has {peers} peers of degree {degree}")
    if peers <= degree + 1:
        only = min(peers - 1, 1)
        return only, only

    def log(x: float) -> float:
        return math.log(x, degree - 1)

    log_floor = 0  # counted in integers: a power of degree - 1 must not slip below itself by rounding
    while (degree - 1) ** (log_floor + 1) <= peers:
        log_floor += 1
    lower = log_floor + math.floor(log(math.log(peers)) - log(6 * degree / (degree - 2))) + 1
    upper = math.ceil(log(peers) + log(math.log(peers)) + log(2 * degree)) + 1
    return max(lower, 2), min(upper, peers - 1)


def _distances(links: Mapping[int, list[int]]) -> tuple[int, float]:
    """Return diameter and mean distance of a connected fabric by letting every peer broadcast.

    Many broadcasts run at once, one bit each: a peer's row holds a bit for every source that has reached
    it, and in one step each row takes in the rows of its neighbours. Memory grows with peers times
    `SOURCES_PER_BLOCK` bits, time with peers times links times diameter, 64 pairs to a processor word.
    """
    peers = len(links)
    columns = _neighbor_columns(links)
    diameter = distance_sum = 0
    for first in range(0, peers, SOURCES_PER_BLOCK):
        sources = min(SOURCES_PER_BLOCK, peers - first)
        reached = _initial_reach(peers, first, sources)
        after, gathered = np.empty_like(reached), np.empty_like(reached)
        steps = 0
        missing = (peers - 1) * sources
        while missing:
            # Whoever is not reached yet is at least one step farther away than we knew.
            distance_sum += missing
            steps += 1
            np.copyto(after, reached)
            for column in columns:
                rows = len(column)
                # "clip" because the default mode copies through a buffer; the numbers are all in range.
                np.take(reached, column, axis=0, out=gathered[:rows], mode="clip")
                np.bitwise_or(after[:rows], gathered[:rows], out=after[:rows])
            reached, after = after, reached
            missing = peers * sources - int(np.bitwise_count(reached).sum(dtype=np.int64))
        diameter = max(diameter, steps)
    return diameter, distance_sum / max(peers * (peers - 1), 1)


def _neighbor_columns(links: Mapping[int, list[int]]) -> list[npt.NDArray[np.intp]]:
    """Lay the links out as columns: the k-th neighbour of each peer that has so many.

    Peers are renumbered by falling degree, so a column is short instead of padded where peers have holes,
    and one peer with thousands of links costs no more than its links.
    """
    by_degree = sorted(links, key=lambda peer: len(links[peer]), reverse=True)
    index_of = {peer: index for index, peer in enumerate(by_degree)}
    columns: list[list[int]] = [[] for _ in range(len(links[by_degree[0]]))]
    for peer in by_degree:
        for column, neighbor in zip(columns, links[peer], strict=False):
            column.append(index_of[neighbor])
    return [np.array(column, dtype=np.intp) for column in columns]


def _initial_reach(peers: int, first: int, sources: int) -> npt.NDArray[np.uint64]:
    """Start the broadcasts of `sources` peers from `first` on: each has reached itself and nobody else."""
    reached = np.zeros((peers, -(-sources // 64)), dtype=np.uint64)
    bits = np.arange(sources)
    reached[first + bits, bits // 64] = np.uint64(1) << (bits % 64).astype(np.uint64)
    return reached
