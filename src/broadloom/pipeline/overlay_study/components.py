"""Connected components of a fabric after failures, and its vertex connectivity.

Vertex connectivity is computed by max-flow (Menger's theorem). It is enough to examine the pairs of one peer with all
others and of its neighbors with each other: a minimum cut either does not contain that peer, or contains it and then
separates two of its neighbors.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from broadloom.pipeline.overlay_study.join_strategies import port_of
from broadloom.pipeline.overlay_study.kernels import NO_PEER, Fabric, compiled, neighbor

CONNECTIVITY_PEERS_MAX = 2_000
"""Above this, vertex connectivity is not computed: the work grows with the square of the peers."""


@dataclass(frozen=True, slots=True)
class ComponentStats:
    """The surviving peers."""

    peers: int
    components: int
    largest: int
    """Peers in the largest component."""
    isolated: int
    """Peers without neighbors."""
    links: int


def component_stats(fabric: Fabric, alive: npt.NDArray[np.bool_]) -> ComponentStats:
    components, largest, isolated, ends = _count_components(fabric, alive)
    return ComponentStats(int(alive.sum()), int(components), int(largest), int(isolated), int(ends) // 2)


def vertex_connectivity(fabric: Fabric) -> int:
    """How many peers must be removed to disconnect the rest (or leave only one)."""
    return int(_connectivity(fabric))


@compiled
def _count_components(fabric: Fabric, alive: npt.NDArray[np.bool_]) -> tuple[int, int, int, int]:
    peers = len(fabric)
    seen = np.zeros(peers, np.bool_)
    queue = np.empty(peers, np.int32)
    components, largest, isolated, ends = 0, 0, 0, 0
    for first in range(peers):
        if seen[first] or not alive[first]:
            continue
        seen[first] = True
        queue[0] = first
        at, length, before = 0, 1, ends
        while at < length:
            for each in fabric[queue[at]]:
                if each == NO_PEER or not alive[each]:
                    continue
                ends += 1
                if not seen[each]:
                    seen[each] = True
                    queue[length] = each
                    length += 1
            at += 1
        components += 1
        largest = max(largest, length)
        if ends == before:
            isolated += 1
    return components, largest, isolated, ends


@compiled
def _connectivity(fabric: Fabric) -> int:
    peers, degree = fabric.shape
    smallest, start = degree + 1, 0
    for peer in range(peers):
        links = 0
        for each in fabric[peer]:
            if each != NO_PEER:
                links += 1
        if links < smallest:
            smallest, start = links, peer
    best: int = min(smallest, peers - 1)
    for other in range(peers):
        if other != start and port_of(fabric, start, other) == NO_PEER:
            best = min(best, _paths(fabric, start, other, best))
    for i in range(degree):
        for j in range(i + 1, degree):
            x, y = neighbor(fabric, start, i), neighbor(fabric, start, j)
            if NO_PEER not in (x, y) and port_of(fabric, x, y) == NO_PEER:
                best = min(best, _paths(fabric, x, y, best))
    return best


@compiled
def _paths(fabric: Fabric, source: int, sink: int, enough: int) -> int:
    """Number of vertex-disjoint paths between two peers that are not neighbors; stops at `enough`.

    Max-flow with augmenting paths: each peer is split into IN (state 2p) and OUT (2p + 1) with capacity one between
    them. `through` marks peers on a path, `over` links on a path, from the peer of that row to its neighbor.
    """
    peers, degree = fabric.shape
    through = np.zeros(peers, np.bool_)
    over = np.zeros((peers, degree), np.bool_)
    came, queue = np.empty(2 * peers, np.int32), np.empty(2 * peers, np.int32)
    found = 0
    while found < enough:
        came[:] = NO_PEER
        start, end = 2 * source + 1, 2 * sink
        came[start] = start
        queue[0] = start
        at, length = 0, 1
        while at < length and came[end] == NO_PEER:
            state = queue[at]
            at += 1
            peer = state >> 1
            is_out = state & 1 == 1
            if is_out == through[peer] and came[state ^ 1] == NO_PEER:  # from IN if it is free, back to IN if not
                came[state ^ 1] = state
                queue[length] = state ^ 1
                length += 1
            for port in range(degree):
                each = neighbor(fabric, peer, port)
                if each == NO_PEER:
                    continue
                if is_out:
                    target, is_open = 2 * each, not over[peer, port]
                else:  # back along an incoming path
                    target, is_open = 2 * each + 1, over[each, port_of(fabric, each, peer)]
                if is_open and came[target] == NO_PEER:
                    came[target] = state
                    queue[length] = target
                    length += 1
        if came[end] == NO_PEER:
            return found
        state = end
        while state != start:
            previous = came[state]
            peer, other = int(previous >> 1), int(state >> 1)
            if peer == other:
                through[peer] = previous & 1 == 0
            elif previous & 1:
                over[peer, port_of(fabric, peer, other)] = True
            else:
                over[other, port_of(fabric, other, peer)] = False
            state = previous
        found += 1
    return found
