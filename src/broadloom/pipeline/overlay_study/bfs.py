"""Distances in a fabric by breadth-first search: from one peer, from many at once, and from all.

`distances_from` searches from one peer. `bfs_from` is bit-parallel: it searches from 512 peers at once, one bit each. A
peer's row has a bit for every source that has reached it, and in each step takes over the rows of its neighbors. From
all peers this gives the diameter, from some of them a lower bound; `docs/study.md` says how good it is.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from broadloom.pipeline.overlay_study.kernels import NO_PEER, Fabric, compiled
from broadloom.pipeline.overlay_study.random_source import new_rng, random_below

WORDS = 8
LANES = 64 * WORDS
"""Sources per search: their bits fill one cache line, which is the cost of visiting a peer."""
UNREACHED = 255
"""No connected fabric has such a distance, unless it is a chain."""

Numbers = npt.NDArray[np.int32]
Bits = npt.NDArray[np.uint64]

FIVES = np.uint64(0x5555555555555555)
THREES = np.uint64(0x3333333333333333)
NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
ONES = np.uint64(0x0101010101010101)


@dataclass(frozen=True, slots=True)
class BfsResult:
    eccentricity_max: int
    """Largest distance from any source; the diameter if all peers are sources."""
    distance_sum: int
    """Sum over all pairs of a source and a peer it reached."""
    unreached: int
    """Pairs in different components; 0 if the fabric is connected."""
    sources: int


def distances_from(fabric: Fabric, source: int) -> npt.NDArray[np.uint8]:
    """Distance from one peer to each; UNREACHED in other components."""
    distances = np.full(len(fabric), UNREACHED, dtype=np.uint8)
    _bfs_single(fabric, source, distances, np.empty(len(fabric), dtype=np.int32))
    return distances


def bfs_from(fabric: Fabric, sources: Numbers) -> BfsResult:
    """Search from these peers, 512 at a time."""
    peers = len(fabric)
    eccentricity, distance_sum, unreached = 0, 0, 0
    rows = [np.empty((peers, WORDS), dtype=np.uint64) for _ in range(2)]
    waiting = np.empty(peers, dtype=np.int32)
    for first in range(0, len(sources), LANES):
        lanes = np.ascontiguousarray(sources[first : first + LANES], dtype=np.int32)
        farthest, distance, left = _bfs_batch(fabric, lanes, rows[0], rows[1], waiting)
        eccentricity = max(eccentricity, int(farthest))
        distance_sum += int(distance)
        unreached += int(left)
    return BfsResult(eccentricity, distance_sum, unreached, len(sources))


def bfs_sample(fabric: Fabric, count: int, seed: int) -> BfsResult:
    """Search from random peers, one after the other, for the mean distance."""
    peers = len(fabric)
    rng = new_rng(seed, peers, count)
    distances, queue = np.empty(peers, dtype=np.uint8), np.empty(peers, dtype=np.int32)
    farthest, distance_sum, unreached = 0, 0, 0
    for _ in range(count):
        distances.fill(UNREACHED)
        reached = _bfs_single(fabric, random_below(rng, peers), distances, queue)
        farthest = max(farthest, int(distances[queue[reached - 1]]))
        counts = np.bincount(distances, minlength=UNREACHED + 1)[:UNREACHED]
        distance_sum += int(counts @ np.arange(UNREACHED))
        unreached += peers - int(reached)
    return BfsResult(farthest, distance_sum, unreached, count)


@compiled
def _bfs_single(fabric: Fabric, source: int, distances: npt.NDArray[np.uint8], queue: Numbers) -> int:
    """Returns the number of peers reached; the last one in the queue is one of the farthest."""
    distances[source] = 0
    queue[0] = source
    at, length = 0, 1
    while at < length:
        peer = queue[at]
        at += 1
        step = min(int(distances[peer]) + 1, UNREACHED - 1)
        for each in fabric[peer]:
            if each != NO_PEER and distances[each] == UNREACHED:
                distances[each] = step
                queue[length] = each
                length += 1
    return length


@compiled
def _popcount(word: np.uint64) -> int:
    word = word - ((word >> np.uint64(1)) & FIVES)
    word = (word & THREES) + ((word >> np.uint64(2)) & THREES)
    word = (word + (word >> np.uint64(4))) & NIBBLES
    return np.int64((word * ONES) >> np.uint64(56))  # type: ignore[return-value]


@compiled
def _first_steps(fabric: Fabric, sources: Numbers, now: Bits) -> tuple[int, int, int]:
    """The first steps, in which few peers are reached: source by source, while that is cheaper."""
    peers, degree = fabric.shape
    steps_max, ball, shell = 0, 1, degree
    while (ball + shell) * len(sources) <= peers:
        ball, shell, steps_max = ball + shell, shell * (degree - 1), steps_max + 1
    queue = np.empty(ball, np.int32)
    farthest, distance_sum, reached = 0, 0, 0
    for lane in range(len(sources)):
        word, bit = lane >> 6, np.uint64(1) << np.uint64(lane & 63)
        queue[0] = sources[lane]
        now[sources[lane], word] |= bit
        at, length = 0, 1
        for step in range(1, steps_max + 1):
            shell_end = length
            while at < shell_end:
                for each in fabric[queue[at]]:
                    if each != NO_PEER and now[each, word] & bit == np.uint64(0):
                        now[each, word] |= bit
                        queue[length] = each
                        length += 1
                at += 1
            if length > shell_end:
                farthest = max(farthest, step)
                distance_sum += (length - shell_end) * step
        reached += length
    return farthest, distance_sum, reached


@compiled
def _bfs_batch(fabric: Fabric, sources: Numbers, now: Bits, after: Bits, waiting: Numbers) -> tuple[int, int, int]:
    """Search from up to 512 sources; returns the largest distance, the sum of distances, and the pairs not reached.

    Only incomplete peers are visited. A complete one is written to both tables, one step later to the second, because
    others still read its previous state there.
    """
    peers, degree = fabric.shape
    lanes = len(sources)
    full = np.zeros(WORDS, np.uint64)
    for lane in range(lanes):
        full[lane >> 6] |= np.uint64(1) << np.uint64(lane & 63)
    for peer in range(peers):
        waiting[peer] = peer
        for word in range(WORDS):
            now[peer, word] = np.uint64(0)
    step, distance_sum, reached = _first_steps(fabric, sources, now)
    missing = lanes * peers - reached
    left, done_until = peers, peers
    row = np.empty(WORDS, np.uint64)
    while missing > 0:
        for place in range(left, done_until):  # full since the last step
            for word in range(WORDS):
                after[waiting[place], word] = full[word]
        done_until = left
        previous, incomplete = missing, 0
        at = 0
        while at < left:
            peer = waiting[at]
            for word in range(WORDS):
                row[word] = now[peer, word]
            for port in range(degree):
                each = fabric[peer, port]
                if each != NO_PEER:
                    for word in range(WORDS):
                        row[word] |= now[each, word]
            count = 0
            for word in range(WORDS):
                after[peer, word] = row[word]
                count += _popcount(row[word])
            if count == lanes:
                left -= 1
                waiting[at], waiting[left] = waiting[left], peer
            else:
                incomplete += lanes - count
                at += 1
        missing = incomplete
        if missing == previous:
            break  # the rest is in other components
        step += 1
        distance_sum += (previous - missing) * step
        now, after = after, now
    return step, distance_sum, missing
