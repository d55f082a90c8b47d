"""How a joiner chooses an edge to be pinned onto: at random, by a random walk, or as the best of several.

An edge is a peer and one of its ports. All strategies return a *usable* edge: neither end is the joiner or already one
of its neighbors. `protocol/membership/random_walk.py` is the original of RANDOM_WALK and BROADLOOM; messages,
reservations and time are left out here, because peers join one after the other.
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from broadloom.pipeline.overlay_study.kernels import NO_PEER, Fabric, compiled, neighbor
from broadloom.pipeline.overlay_study.random_source import Rng, random_below

TRIES = 256
"""Random edges tried before all are searched, which matters only in fabrics of a few peers."""
WALK_EXTRA_STEPS = 8
"""How often a walk may continue from an unusable edge, as in `ChannelSettings`."""
CLUSTER_AVOIDANCE_DIAMETER = 3
"""Up to this diameter clusters are accepted, as in `protocol/membership/neighbor_lists.py`."""


class JoinStrategy(IntEnum):
    UNIFORM_EDGE = 0
    """Any edge with the same probability: the model of the SWAN paper."""
    RANDOM_WALK = 1
    """The last step of a random walk of twice the diameter, from a random peer."""
    BROADLOOM = 2
    """As RANDOM_WALK, but the joiner rejects edges that would form a cluster: what Broadloom does."""
    LEAST_CLUSTERED = 3
    """Of k random edges, the one with most peers within two steps. Peers know that from their two-hop view."""
    FARTHEST = 4
    """Of k random edges, the one farthest from the joiner's other neighbors. No single peer can know that."""
    RANDOM_REGULAR = 5
    """Not grown: a random regular graph for comparison."""


@compiled
def is_usable(fabric: Fabric, joiner: int, peer: int, port: int) -> bool:
    """Whether this edge can be cut for the joiner."""
    other = fabric[peer, port]
    if other == NO_PEER or other == joiner or peer == joiner:  # noqa: PLR1714, SIM109  (tuples of one type only)
        return False
    for mine in fabric[joiner]:  # noqa: SIM110  (a generator cannot be compiled)
        if mine == peer or mine == other:  # noqa: PLR1714, SIM109
            return False
    return True


@compiled
def is_clustered(fabric: Fabric, joiner: int, peer: int, port: int) -> bool:
    """Whether an end of this edge shares a neighbor with the joiner, apart from the other end."""
    other = fabric[peer, port]
    for mine in fabric[joiner]:
        if mine == NO_PEER:
            continue
        for each in fabric[peer]:
            if each == mine and each != other:
                return True
        for each in fabric[other]:
            if each == mine and each != peer:
                return True
    return False


@compiled
def any_edge(fabric: Fabric, peers: int, joiner: int, rng: Rng) -> tuple[int, int]:
    """A usable edge, each with the same probability; (NO_PEER, 0) if there is none."""
    degree = fabric.shape[1]
    for _ in range(TRIES):
        peer, port = random_below(rng, peers), random_below(rng, degree)
        if is_usable(fabric, joiner, peer, port):
            return peer, port
    first = random_below(rng, peers)
    for step in range(peers):
        peer = (first + step) % peers
        for port in range(degree):
            if is_usable(fabric, joiner, peer, port):
                return peer, port
    return NO_PEER, 0


@compiled
def continue_walk(fabric: Fabric, peer: int, previous: int, steps: int, rng: Rng) -> tuple[int, int]:
    """Walk this many steps, never straight back; returns the last two peers."""
    degree = fabric.shape[1]
    for _ in range(steps):
        port = random_below(rng, degree)
        while fabric[peer, port] == NO_PEER or fabric[peer, port] == previous:
            port = random_below(rng, degree)
        previous, peer = peer, fabric[peer, port]
    return peer, previous


@compiled
def port_of(fabric: Fabric, peer: int, other: int) -> int:
    """The port at which `peer` has this neighbor; NO_PEER if none."""
    for port in range(fabric.shape[1]):
        if fabric[peer, port] == other:
            return port
    return NO_PEER


@compiled
def edge_by_walk(
    fabric: Fabric, peers: int, joiner: int, contact: int, diameter: int, avoids_clusters: bool, rng: Rng
) -> tuple[int, int]:
    """Walk from the contacted peer; a walk that ends at an unusable edge continues for one or two steps."""
    steps = 2 * max(diameter, 2) + random_below(rng, 2)
    peer, before = continue_walk(fabric, contact, NO_PEER, steps, rng)
    for spare in range(WALK_EXTRA_STEPS, -1, -1):
        port = port_of(fabric, peer, before)
        refused = (
            avoids_clusters
            and spare > 0
            and diameter > CLUSTER_AVOIDANCE_DIAMETER
            and is_clustered(fabric, joiner, peer, port)
        )
        if is_usable(fabric, joiner, peer, port) and not refused:
            return peer, port
        peer, before = continue_walk(fabric, peer, before, 1 + random_below(rng, 2), rng)
    return any_edge(fabric, peers, joiner, rng)  # the joiner asks another peer


# -- best of several


@compiled
def within_two_steps(fabric: Fabric, peer: int, port: int, seen: npt.NDArray[np.int32], mark: int) -> int:
    """Number of peers within two steps of the edge, including its ends."""
    count = 0
    for end in (peer, neighbor(fabric, peer, port)):
        if seen[end] != mark:
            seen[end] = mark
            count += 1
        for near in fabric[end]:
            if near == NO_PEER:
                continue
            if seen[near] != mark:
                seen[near] = mark
                count += 1
            for far in fabric[near]:
                if far != NO_PEER and seen[far] != mark:
                    seen[far] = mark
                    count += 1
    return count


@compiled
def least_clustered_edge(
    fabric: Fabric,
    peers: int,
    joiner: int,
    choices: int,
    seen: npt.NDArray[np.int32],
    marks: npt.NDArray[np.int32],
    rng: Rng,
) -> tuple[int, int]:
    best_peer, best_port, best = NO_PEER, 0, -1
    for _ in range(choices):
        peer, port = any_edge(fabric, peers, joiner, rng)
        if peer == NO_PEER:
            break
        marks[0] += 1
        room = within_two_steps(fabric, peer, port, seen, marks[0])
        if room > best:
            best_peer, best_port, best = peer, port, room
    return best_peer, best_port


@compiled
def farthest_edge(
    fabric: Fabric,
    peers: int,
    joiner: int,
    choices: int,
    seen: npt.NDArray[np.int32],
    marks: npt.NDArray[np.int32],
    queue: npt.NDArray[np.int32],
    rng: Rng,
) -> tuple[int, int]:
    """Search from the joiner's neighbors, not through itself; the candidate edge that is reached last."""
    first_peer, first_port = any_edge(fabric, peers, joiner, rng)
    if first_peer == NO_PEER or choices < 2:
        return first_peer, first_port
    offered = np.empty((choices, 2), np.int64)
    offered[0] = first_peer, first_port
    for choice in range(1, choices):
        offered[choice] = any_edge(fabric, peers, joiner, rng)
    marks[0] += 1
    mark = marks[0]
    seen[joiner] = mark
    length = 0
    for mine in fabric[joiner]:
        if mine != NO_PEER:
            seen[mine] = mark
            queue[length] = mine
            length += 1
    if length == 0:  # its first edge: there is nothing to be far from
        return first_peer, first_port
    at, last, reached = 0, 0, np.zeros(choices, np.bool_)
    left = choices
    while at < length and left > 0:
        peer = queue[at]
        at += 1
        for choice in range(choices):
            if not reached[choice] and (
                offered[choice, 0] == peer or fabric[offered[choice, 0], offered[choice, 1]] == peer
            ):
                reached[choice] = True
                last = choice
                left -= 1
        for each in fabric[peer]:
            if each != NO_PEER and seen[each] != mark:
                seen[each] = mark
                queue[length] = each
                length += 1
    for choice in range(choices):
        if not reached[choice]:  # another component: farther than everything
            last = choice
    return offered[last, 0], offered[last, 1]
