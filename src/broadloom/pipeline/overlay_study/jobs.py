"""One job is one fabric, or a part of the work on a large one: pure functions from a job to its figures.

A job holds everything that its result depends on, and grows its own fabric: that is faster than transferring one.
"""

import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from broadloom.pipeline.overlay_study.bfs import bfs_from, bfs_sample
from broadloom.pipeline.overlay_study.components import CONNECTIVITY_PEERS_MAX, component_stats, vertex_connectivity
from broadloom.pipeline.overlay_study.grow import grow
from broadloom.pipeline.overlay_study.join_strategies import JoinStrategy, port_of
from broadloom.pipeline.overlay_study.kernels import NO_PEER, Fabric, compiled
from broadloom.pipeline.overlay_study.peripheral_peers import peripheral_peers
from broadloom.pipeline.overlay_study.random_source import new_rng

SAMPLE = 8
"""Random peers from which the mean distance of a large fabric is measured."""

Figures = dict[str, int | float | None]


class JobKind(NamedTuple):
    work: Callable[[Any], Figures]
    cost_s: Callable[[Any], float]
    """Estimated duration, to distribute the work evenly."""


@dataclass(frozen=True, slots=True)
class SpreadJob:
    """Measures distances between peers."""

    peers: int
    degree: int
    seed: int
    strategy: JoinStrategy = JoinStrategy.UNIFORM_EDGE
    choices: int = 1
    first: int = 0
    last: int = 0
    """Search from the peers first to last - 1; if that is none, from `bfs_sources` peripheral peers."""
    bfs_sources: int = 0
    with_connectivity: bool = False

    @property
    def fabric(self) -> Fabric:
        return grow(self.peers, self.degree, self.seed, self.strategy, self.choices)


@dataclass(frozen=True, slots=True)
class FailureJob:
    """Measures what is left when a fraction of the peers fails at once."""

    peers: int
    degree: int
    seed: int
    strategy: JoinStrategy
    choices: int
    fractions: tuple[float, ...]
    """All fractions use the same fabric, with different victims."""
    fraction_index: int
    """Index into `fractions`."""


def measure_spread(job: SpreadJob) -> Figures:
    reset_peak_memory()
    start_s = time.process_time()
    fabric = job.fabric
    grown_s = time.process_time()
    if job.last > job.first:
        reach = mean = bfs_from(fabric, np.arange(job.first, job.last, dtype=np.int32))
        farthest = reach.eccentricity_max
    else:
        mean = bfs_sample(fabric, min(SAMPLE, job.peers), job.seed)
        reach = bfs_from(fabric, peripheral_peers(fabric, job.bfs_sources))
        farthest = max(reach.eccentricity_max, mean.eccentricity_max)
    connectivity = None
    if job.with_connectivity and job.peers <= CONNECTIVITY_PEERS_MAX:
        connectivity = vertex_connectivity(fabric)
    return {
        "diameter": farthest,
        "distance_sum": mean.distance_sum,
        "pairs": mean.sources * (job.peers - 1) - mean.unreached,
        "unreached": reach.unreached,
        "free_slots": int((fabric == NO_PEER).sum()),
        "clustered_links": int(_clustered_links(fabric)),
        "connectivity": connectivity,
        "grow_s": grown_s - start_s,
        "search_s": time.process_time() - grown_s,
        "memory_mb": peak_memory_mb(),
    }


SPREAD_JOB = JobKind(
    measure_spread,
    lambda job: (
        1e-6
        * job.peers
        * (2 + 10 * (job.strategy is not JoinStrategy.UNIFORM_EDGE) + (job.last - job.first + job.bfs_sources) / 100)
    ),
)


def measure_failure(job: FailureJob) -> Figures:
    reset_peak_memory()
    fabric = grow(job.peers, job.degree, job.seed, job.strategy, job.choices)
    victims = round(job.fractions[job.fraction_index] * job.peers)
    rng = np.random.default_rng(int(new_rng(job.seed, victims)[0]))
    alive = np.ones(job.peers, dtype=np.bool_)
    alive[rng.permutation(job.peers)[:victims]] = False
    parts = component_stats(fabric, alive)
    return {
        "survivors": parts.peers,
        "components": parts.components,
        "largest": parts.largest,
        "isolated": parts.isolated,
        "links": parts.links,
        "memory_mb": peak_memory_mb(),
    }


FAILURE_JOB = JobKind(measure_failure, lambda job: 2e-6 * job.peers)


def reset_peak_memory() -> None:
    """So that the next peak is that of this job. Linux only; elsewhere it is that of the largest job so far."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mb() -> float:
    """Peak memory of this process since the reset."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


@compiled
def _clustered_links(fabric: Fabric) -> int:
    """Number of links whose ends share a neighbor."""
    count = 0
    for peer in range(len(fabric)):
        for other in fabric[peer]:
            if other <= peer:  # each link once; also skips NO_PEER
                continue
            for each in fabric[peer]:
                if each != NO_PEER and each != other and port_of(fabric, other, each) != NO_PEER:  # noqa: PLR1714
                    count += 1
                    break
    return count
