"""Chooses the peers of a large fabric to search from: those that are likely to be far from others.

The neighborhood of a peer decides how far others are: where short cycles lead back, a search reaches fewer peers in
every step. So peers are ranked by how few peers are near them: first all of them within few steps, then the best
candidates within many.
"""

import numpy as np
import numpy.typing as npt

from broadloom.pipeline.overlay_study.bfs import UNREACHED, distances_from
from broadloom.pipeline.overlay_study.kernels import NO_PEER, Fabric, compiled

SLOTS = 256
"""Size of the hash table that counts nearby peers; a power of two, more than twice its content."""
NEAR_MAX = 100
"""Maximum number of nearby peers in the first ranking."""
RUNNERS_UP = 32
"""Candidates per chosen peer in the second ranking."""
FAR_RATIO = 0.25
"""Fraction of the chosen peers that are farthest from the first one."""
HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def peripheral_peers(fabric: Fabric, count: int) -> npt.NDArray[np.int32]:
    """This number of different peers, or all; the best candidate first."""
    peers, degree = fabric.shape
    if count >= peers:
        return np.arange(peers, dtype=np.int32)
    rank = np.empty(peers, dtype=np.int16)
    _rank_all(fabric, _steps_within(NEAR_MAX, degree), rank)
    thin = np.argsort(rank, kind="stable")[: min(RUNNERS_UP * count, peers)].astype(np.int32)
    # Half way across: farther out, all searches are alike.
    sizes = _balls(fabric, thin, _steps_within(max(int(peers**0.5), 1), degree))
    thin = thin[np.argsort(sizes, kind="stable")]
    distances = distances_from(fabric, int(thin[0]))
    distances[distances == UNREACHED] = 0
    far = np.argpartition(distances, peers - count)[peers - count :]
    far = far[np.argsort(distances[far], kind="stable")[::-1]][: int(count * FAR_RATIO)].astype(np.int32)
    return np.concatenate([thin[~np.isin(thin, far)][: count - len(far)], far])


def _steps_within(limit: int, degree: int) -> int:
    """Steps in which a peer reaches at most `limit` peers, itself included; at least 1."""
    steps, ball, shell = 0, 1, degree
    while ball + shell <= limit:
        steps, ball, shell = steps + 1, ball + shell, shell * (degree - 1)
    return max(steps, 1)


@compiled
def _rank_all(fabric: Fabric, steps: int, rank: npt.NDArray[np.int16]) -> None:
    """Number of peers near each peer, with a small hash table that stays in the cache."""
    peers = len(fabric)
    keys, looks = np.full(SLOTS, NO_PEER, np.int32), np.full(SLOTS, NO_PEER, np.int32)
    queue = np.empty(SLOTS, np.int32)
    for peer in range(peers):
        queue[0] = peer
        at, length = 0, 0
        end = 1
        _add(keys, looks, peer, peer, queue, 0)
        length = 1
        for _ in range(steps):
            while at < end:
                for each in fabric[queue[at]]:
                    if each != NO_PEER and 2 * length < SLOTS:
                        length = _add(keys, looks, each, peer, queue, length)
                at += 1
            end = length
        rank[peer] = length


@compiled
def _add(
    keys: npt.NDArray[np.int32],
    owners: npt.NDArray[np.int32],
    peer: int,
    owner: int,
    queue: npt.NDArray[np.int32],
    length: int,
) -> int:
    """Add a peer to the table and the queue unless it is there."""
    slot = np.int64((np.uint64(peer) * HASH_MULTIPLIER) >> np.uint64(56))
    while owners[slot] == owner:
        if keys[slot] == peer:
            return length
        slot = (slot + 1) & (SLOTS - 1)
    owners[slot] = owner
    keys[slot] = peer
    queue[length] = peer
    return length + 1


@compiled
def _balls(fabric: Fabric, centers: npt.NDArray[np.int32], steps: int) -> npt.NDArray[np.int32]:
    """Number of peers within this many steps of each center."""
    peers = len(fabric)
    seen, queue = np.full(peers, NO_PEER, np.int32), np.empty(peers, np.int32)
    sizes = np.empty(len(centers), np.int32)
    for place in range(len(centers)):
        queue[0] = centers[place]
        seen[centers[place]] = place
        at, end, length = 0, 1, 1
        for _ in range(steps):
            while at < end:
                for each in fabric[queue[at]]:
                    if each != NO_PEER and seen[each] != place:
                        seen[each] = place
                        queue[length] = each
                        length += 1
                at += 1
            end = length
        sizes[place] = length
    return sizes
