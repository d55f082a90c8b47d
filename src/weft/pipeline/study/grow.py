"""Growing a fabric by pinning, peer after peer, as Weft's joining does.

Up to r+1 peers all are linked to all. Each further one is pinned onto r/2 disjoint edges: the edge u-v is cut and both
ends are tied to the newcomer. With an odd r one hole may be left over; the next newcomer fills it. What a fabric is
made of depends on its size, degree, way and seed alone.
"""

import math

import numpy as np

from weft.pipeline.study.chance import Chance, below, chance_of
from weft.pipeline.study.compiled import NOBODY, Fabric, compiled, neighbour
from weft.pipeline.study.ways import (
    Way,
    any_edge,
    edge_by_walk,
    farthest_edge,
    port_of,
    sparsest_edge,
)

PEERS_MAX = 2**31 - 1
"""Peers are numbered with 32 bits."""
SWAPS_A_LINK = 10
"""For RANDOM: after so many exchanges a link nothing is left of the order in which a fabric grew."""

_PLAIN, _WALK, _WEFT = int(Way.PLAIN), int(Way.WALK), int(Way.WEFT)
_SPARSE, _FAR = int(Way.SPARSE), int(Way.FAR)


def grow(peers: int, degree: int = 4, seed: int = 1, way: Way = Way.PLAIN, choices: int = 1) -> Fabric:
    """A fabric of so many peers. `choices` is the k of the best-of-k ways."""
    if not 1 <= peers <= PEERS_MAX or degree < 3:
        raise ValueError(f"no fabric has {peers} peers of degree {degree}")
    chance = chance_of(seed, peers, degree, int(way), choices)
    fabric = np.full((peers, degree), NOBODY, dtype=np.int32)
    _grow(fabric, int(way), choices, chance)
    if way is Way.RANDOM:
        _shuffle(fabric, SWAPS_A_LINK * peers * degree // 2, chance)
    return fabric


@compiled
def _grow(fabric: Fabric, way: int, choices: int, chance: Chance) -> None:
    peers, degree = fabric.shape
    small = min(peers, degree + 1)
    for peer in range(small):
        port = 0
        for other in range(small):
            if other != peer:
                fabric[peer, port] = other
                port += 1
    looks = peers if way in (_SPARSE, _FAR) else 1
    seen, queue, marks = np.zeros(looks, np.int32), np.empty(looks, np.int32), np.zeros(1, np.int32)
    lacking = NOBODY
    for newcomer in range(small, peers):
        contact = below(chance, newcomer)
        diameter = 1
        if way in (_WALK, _WEFT):
            diameter = math.ceil(math.log(newcomer) / math.log(degree - 1)) + 2
        for pair in range(degree // 2):
            if way in (_WALK, _WEFT):
                peer, port = edge_by_walk(fabric, newcomer, newcomer, contact, diameter, way == _WEFT, chance)
            elif way == _SPARSE:
                peer, port = sparsest_edge(fabric, newcomer, newcomer, choices, seen, marks, chance)
            elif way == _FAR:
                peer, port = farthest_edge(fabric, newcomer, newcomer, choices, seen, marks, queue, chance)
            else:
                peer, port = any_edge(fabric, newcomer, newcomer, chance)
            if peer != NOBODY:
                _pin(fabric, newcomer, 2 * pair, peer, port)
        if degree % 2:
            lacking = _fill_hole(fabric, newcomer, lacking, chance)


@compiled
def _pin(fabric: Fabric, newcomer: int, place: int, peer: int, port: int) -> None:
    other = neighbour(fabric, peer, port)
    fabric[other, port_of(fabric, other, peer)] = newcomer
    fabric[peer, port] = newcomer
    fabric[newcomer, place] = peer
    fabric[newcomer, place + 1] = other


@compiled
def _fill_hole(fabric: Fabric, newcomer: int, lacking: int, chance: Chance) -> int:
    """Odd degree: link the newcomer to the one that lacks a link; gives who lacks one now."""
    hole = fabric.shape[1] - 1
    if lacking == NOBODY:
        return newcomer
    if port_of(fabric, newcomer, lacking) == NOBODY:
        fabric[newcomer, hole] = lacking
        fabric[lacking, port_of(fabric, lacking, NOBODY)] = newcomer
        return NOBODY
    # Two neighbours with one hole each: an edge x-y is pinned onto the two of them. Any will do, from a random one on.
    degree = fabric.shape[1]
    first = below(chance, newcomer)
    for step in range(newcomer):
        x = (first + step) % newcomer
        if x == lacking or port_of(fabric, newcomer, x) != NOBODY:
            continue
        for port in range(degree):
            y = neighbour(fabric, x, port)
            if y != NOBODY and y != newcomer and y != lacking and port_of(fabric, lacking, y) == NOBODY:  # noqa: PLR1714
                fabric[y, port_of(fabric, y, x)] = lacking
                fabric[x, port] = newcomer
                fabric[newcomer, hole] = x
                fabric[lacking, port_of(fabric, lacking, NOBODY)] = y
                return NOBODY
    return lacking


@compiled
def _shuffle(fabric: Fabric, swaps: int, chance: Chance) -> None:
    """Exchange the ends of random pairs of edges, u-v and x-y to u-x and v-y, where that doubles no link."""
    peers, degree = fabric.shape
    for _ in range(swaps):
        u, x = below(chance, peers), below(chance, peers)
        u_port, x_port = below(chance, degree), below(chance, degree)
        v, y = neighbour(fabric, u, u_port), neighbour(fabric, x, x_port)
        if NOBODY in (v, y) or u in (x, y) or v in (x, y):
            continue
        if port_of(fabric, u, x) != NOBODY or port_of(fabric, v, y) != NOBODY:
            continue
        v_port, y_port = port_of(fabric, v, u), port_of(fabric, y, x)
        fabric[u, u_port], fabric[x, x_port] = x, u
        fabric[v, v_port], fabric[y, y_port] = y, v
