"""Grows a fabric by edge pinning, peer after peer, as in SWAN.

Up to r+1 peers form a full mesh. Each further peer is pinned onto r/2 disjoint edges: the edge u-v is cut, and both
ends are linked to the joiner. With an odd r one slot may stay free; the next joiner fills it. A fabric depends only on
size, degree, strategy and seed.
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
"""For RANDOM_REGULAR: after this many swaps per link nothing is left of the order of growth."""

_RANDOM_WALK, _BROADLOOM = int(JoinStrategy.RANDOM_WALK), int(JoinStrategy.BROADLOOM)
_LEAST_CLUSTERED, _FARTHEST = int(JoinStrategy.LEAST_CLUSTERED), int(JoinStrategy.FARTHEST)


def grow(
    peers: int, degree: int = 4, seed: int = 1, strategy: JoinStrategy = JoinStrategy.UNIFORM_EDGE, choices: int = 1
) -> Fabric:
    """Grow a fabric. `choices` is the number of candidates of best-of-k strategies."""
    if not 1 <= peers <= PEERS_MAX or degree < 3:
        raise ValueError(f"no fabric has {peers} peers of degree {degree}")
    rng = new_rng(seed, peers, degree, int(strategy), choices)
    fabric = np.full((peers, degree), NO_PEER, dtype=np.int32)
    _grow(fabric, int(strategy), choices, rng)
    if strategy is JoinStrategy.RANDOM_REGULAR:
        _shuffle(fabric, SWAPS_PER_LINK * peers * degree // 2, rng)
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
    looks = peers if strategy in (_LEAST_CLUSTERED, _FARTHEST) else 1
    seen, queue, marks = np.zeros(looks, np.int32), np.empty(looks, np.int32), np.zeros(1, np.int32)
    free_slot_peer = NO_PEER
    for joiner in range(small, peers):
        contact = random_below(rng, joiner)
        diameter = 1
        if strategy in (_RANDOM_WALK, _BROADLOOM):
            diameter = math.ceil(math.log(joiner) / math.log(degree - 1)) + 2
        for pair in range(degree // 2):
            if strategy in (_RANDOM_WALK, _BROADLOOM):
                peer, port = edge_by_walk(fabric, joiner, joiner, contact, diameter, strategy == _BROADLOOM, rng)
            elif strategy == _LEAST_CLUSTERED:
                peer, port = least_clustered_edge(fabric, joiner, joiner, choices, seen, marks, rng)
            elif strategy == _FARTHEST:
                peer, port = farthest_edge(fabric, joiner, joiner, choices, seen, marks, queue, rng)
            else:
                peer, port = any_edge(fabric, joiner, joiner, rng)
            if peer != NO_PEER:
                _pin(fabric, joiner, 2 * pair, peer, port)
        if degree % 2:
            free_slot_peer = _fill_free_slot(fabric, joiner, free_slot_peer, rng)


@compiled
def _pin(fabric: Fabric, joiner: int, place: int, peer: int, port: int) -> None:
    other = neighbor(fabric, peer, port)
    fabric[other, port_of(fabric, other, peer)] = joiner
    fabric[peer, port] = joiner
    fabric[joiner, place] = peer
    fabric[joiner, place + 1] = other


@compiled
def _fill_free_slot(fabric: Fabric, joiner: int, free_slot_peer: int, rng: Rng) -> int:
    """Odd degree: link the joiner to the peer with a free slot; returns the peer that has one now."""
    last_port = fabric.shape[1] - 1
    if free_slot_peer == NO_PEER:
        return joiner
    if port_of(fabric, joiner, free_slot_peer) == NO_PEER:
        fabric[joiner, last_port] = free_slot_peer
        fabric[free_slot_peer, port_of(fabric, free_slot_peer, NO_PEER)] = joiner
        return NO_PEER
    # Two neighbors with a free slot each: cut any edge x-y and link its ends to the two, starting at a random one.
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
                fabric[joiner, last_port] = x
                fabric[free_slot_peer, port_of(fabric, free_slot_peer, NO_PEER)] = y
                return NO_PEER
    return free_slot_peer


@compiled
def _shuffle(fabric: Fabric, swaps: int, rng: Rng) -> None:
    """Swap the ends of random pairs of edges, u-v and x-y to u-x and v-y, where that duplicates no link."""
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
