"""Growing a fabric by pinning, peer after peer, as Broadloom's joining does.

Up to r+1 peers all are linked to all. Each further one is pinned onto r/2 disjoint edges: the edge u-v is cut and both
ends are tied to the newcomer. With an odd r one hole may be left over; the next newcomer fills it. What a fabric is
made of depends on its size, degree, way and seed alone.
"""

import math

import numpy as np

from broadloom.pipeline.overlay_study.join_strategies import (
    JoinStrategy,
    any_edge,
    edge_by_walk,
    farthest_edge,
    least_clustered_edge,
    port_of,
)
from broadloom.pipeline.overlay_study.kernels import NO_PEER, Fabric, compiled, neighbor
from broadloom.pipeline.overlay_study.random_source import Rng, new_rng, random_below

PEERS_MAX = 2**31 - 1
"""Peers are numbered with 32 bits."""
SWAPS_PER_LINK = 10
"""For RANDOM: after so many exchanges a link nothing is left of the order in which a fabric grew."""

_PLAIN, _WALK, _BROADLOOM = int(JoinStrategy.PLAIN), int(JoinStrategy.WALK), int(JoinStrategy.BROADLOOM)
_SPARSE, _FAR = int(JoinStrategy.SPARSE), int(JoinStrategy.FAR)


def grow(
    peers: int, degree: int = 4, seed: int = 1, strategy: JoinStrategy = JoinStrategy.PLAIN, choices: int = 1
) -> Fabric:
    """A fabric of so many peers. `choices` is the k of the best-of-k ways."""
    if not 1 <= peers <= PEERS_MAX or degree < 3:
        raise ValueError(f"no fabric has {peers} peers of degree {degree}")
    chance = new_rng(seed, peers, degree, int(strategy), choices)
    fabric = np.full((peers, degree), NO_PEER, dtype=np.int32)
    _grow(fabric, int(strategy), choices, chance)
    if strategy is JoinStrategy.RANDOM:
        _shuffle(fabric, SWAPS_PER_LINK * peers * degree // 2, chance)
    return fabric


@compiled
def _grow(fabric: Fabric, strategy: int, choices: int, rng: Rng) -> None:
    peers, degree = fabric.shape
    small = min(peers, degree + 1)
    for peer in range(small):
        port = 0
        for other in range(small):
            if other != peer:
                fabric[peer, port] = other
                port += 1
    looks = peers if strategy in (_SPARSE, _FAR) else 1
    seen, queue, marks = np.zeros(looks, np.int32), np.empty(looks, np.int32), np.zeros(1, np.int32)
    lacking = NO_PEER
    for newcomer in range(small, peers):
        contact = random_below(rng, newcomer)
        diameter = 1
        if strategy in (_WALK, _BROADLOOM):
            diameter = math.ceil(math.log(newcomer) / math.log(degree - 1)) + 2
        for pair in range(degree // 2):
            if strategy in (_WALK, _BROADLOOM):
                peer, port = edge_by_walk(fabric, newcomer, newcomer, contact, diameter, strategy == _BROADLOOM, rng)
            elif strategy == _SPARSE:
                peer, port = least_clustered_edge(fabric, newcomer, newcomer, choices, seen, marks, rng)
            elif strategy == _FAR:
                peer, port = farthest_edge(fabric, newcomer, newcomer, choices, seen, marks, queue, rng)
            else:
                peer, port = any_edge(fabric, newcomer, newcomer, rng)
            if peer != NO_PEER:
                _pin(fabric, newcomer, 2 * pair, peer, port)
        if degree % 2:
            lacking = _fill_free_slot(fabric, newcomer, lacking, rng)


@compiled
def _pin(fabric: Fabric, joiner: int, place: int, peer: int, port: int) -> None:
    other = neighbor(fabric, peer, port)
    fabric[other, port_of(fabric, other, peer)] = joiner
    fabric[peer, port] = joiner
    fabric[joiner, place] = peer
    fabric[joiner, place + 1] = other


@compiled
def _fill_free_slot(fabric: Fabric, joiner: int, free_slot_peer: int, rng: Rng) -> int:
    """Odd degree: link the newcomer to the one that lacks a link; gives who lacks one now."""
    hole = fabric.shape[1] - 1
    if free_slot_peer == NO_PEER:
        return joiner
    if port_of(fabric, joiner, free_slot_peer) == NO_PEER:
        fabric[joiner, hole] = free_slot_peer
        fabric[free_slot_peer, port_of(fabric, free_slot_peer, NO_PEER)] = joiner
        return NO_PEER
    # Two neighbours with one hole each: an edge x-y is pinned onto the two of them. Any will do, from a random one on.
    degree = fabric.shape[1]
    first = random_below(rng, joiner)
    for step in range(joiner):
        x = (first + step) % joiner
        if x == free_slot_peer or port_of(fabric, joiner, x) != NO_PEER:
            continue
        for port in range(degree):
            y = neighbor(fabric, x, port)
            if y != NO_PEER and y != joiner and y != free_slot_peer and port_of(fabric, free_slot_peer, y) == NO_PEER:  # noqa: PLR1714
                fabric[y, port_of(fabric, y, x)] = free_slot_peer
                fabric[x, port] = joiner
                fabric[joiner, hole] = x
                fabric[free_slot_peer, port_of(fabric, free_slot_peer, NO_PEER)] = y
                return NO_PEER
    return free_slot_peer


@compiled
def _shuffle(fabric: Fabric, swaps: int, rng: Rng) -> None:
    """Exchange the ends of random pairs of edges, u-v and x-y to u-x and v-y, where that doubles no link."""
    peers, degree = fabric.shape
    for _ in range(swaps):
        u, x = random_below(rng, peers), random_below(rng, peers)
        u_port, x_port = random_below(rng, degree), random_below(rng, degree)
        v, y = neighbor(fabric, u, u_port), neighbor(fabric, x, x_port)
        if NO_PEER in (v, y) or u in (x, y) or v in (x, y):
            continue
        if port_of(fabric, u, x) != NO_PEER or port_of(fabric, v, y) != NO_PEER:
            continue
        v_port, y_port = port_of(fabric, v, u), port_of(fabric, y, x)
        fabric[u, u_port], fabric[x, x_port] = x, u
        fabric[v, v_port], fabric[y, y_port] = y, v
