"""Running a scenario over many seeds, on several cores, and saying what came of it."""

import gc
import multiprocessing
import resource
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from weft.sim.scenario import Scenario
from weft.sim.simulation import MakeTape, Simulation
from weft.sim.steps import Run
from weft.sim.watch import PromiseBroken


@dataclass(slots=True)
class Outcome:
    """One seed of one scenario."""

    scenario: str
    peers: int
    seed: int
    problem: str | None = None
    figures: dict[str, float] = field(default_factory=dict)
    messages: int = 0
    deliveries: int = 0
    missed: int = 0
    """Messages that peers were told they missed."""
    virtual_s: float = 0.0
    events: int = 0
    wall_s: float = 0.0
    memory_mb: float = 0.0
    """Peak of the process that ran it (and others before it)."""
    adjacency: dict[int, list[int]] | None = None


def run_seed(scenario: Scenario, seed: int, peers: int = 0, make_tape: MakeTape | None = None) -> Outcome:
    # A large simulation is one growing heap of living objects: looking through it again and again finds nothing. What
    # the last one left is another matter.
    gc.set_threshold(200_000, 50, 1000)
    gc.collect()
    outcome = Outcome(scenario.name, peers or scenario.peers, seed)
    start = time.perf_counter()
    simulation = Simulation(seed, scenario.settings, make_tape=make_tape)
    run = Run(simulation, outcome.peers)
    try:
        scenario.play(run)
    except PromiseBroken as broken:
        outcome.problem = str(broken)
    outcome.figures = run.figures
    outcome.messages = sum(len(times) for times in simulation.watch.sent_at.values())
    outcome.deliveries = simulation.watch.deliveries
    outcome.missed = simulation.watch.reported_missed
    outcome.virtual_s = simulation.clock.now
    outcome.events = simulation.events
    outcome.wall_s = time.perf_counter() - start
    outcome.memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    outcome.adjacency = run.adjacency
    return outcome


def _run_seed(job: tuple[Scenario, int, int]) -> Outcome:
    return run_seed(*job)


def run_seeds(scenario: Scenario, seeds: Iterable[int], peers: int = 0, jobs: int = 1) -> Iterator[Outcome]:
    """Outcomes as they come; in the order of the seeds only with one job."""
    work = [(scenario, seed, peers) for seed in seeds]
    if jobs <= 1 or len(work) <= 1:
        yield from map(_run_seed, work)
        return
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(work))) as pool:
        yield from pool.imap_unordered(_run_seed, work)
