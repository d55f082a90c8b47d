"""Runs a scenario with many seeds on several cores. Results as tables and JSON, and the command that replays one."""

import gc
import json
import multiprocessing
import resource
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.scenario import Scenario, load
from broadloom.testing.sim.simulation import Simulation, TapeFactory
from broadloom.testing.sim.step_checker import GuaranteeViolation
from broadloom.testing.sim.steps import Run

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(slots=True)
class SeedResult:
    scenario: str
    peers: int
    seed: int
    problem: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    messages: int = 0
    deliveries: int = 0
    missed: int = 0
    """Messages reported as missed."""
    virtual_s: float = 0.0
    events: int = 0
    wall_s: float = 0.0
    memory_mb: float = 0.0
    """Peak of the process, including its earlier runs."""
    adjacency: dict[int, list[int]] | None = None


def parse_seeds(text: str) -> list[int]:
    """Parse a seed or a range of seeds, such as 7 or 1..20."""
    first, dots, last = text.partition("..")
    try:
        seeds = list(range(int(first), int(last if dots else first) + 1))
    except ValueError:
        raise ValueError(f"expected a number or a range such as 1..20, not {text!r}") from None
    if not seeds:
        raise ValueError(f"{text} is an empty range")
    return seeds


def run_seed(scenario: Scenario, seed: int, peers: int = 0, tape_factory: TapeFactory | None = None) -> SeedResult:
    # A large simulation only grows, so frequent collections find nothing. Only the previous run leaves garbage.
    gc.set_threshold(200_000, 50, 1000)
    gc.collect()
    result = SeedResult(scenario.name, peers or scenario.peers, seed)
    start = time.perf_counter()
    simulation = Simulation(seed, scenario.settings, tape_factory=tape_factory)
    run = Run(simulation, result.peers)
    try:
        scenario.run_steps(run)
    except GuaranteeViolation as violation:
        result.problem = str(violation)
    result.metrics = run.metrics
    result.messages = sum(len(times) for times in simulation.checker.sent_at.values())
    result.deliveries = simulation.checker.delivery_count
    result.missed = simulation.checker.missed_count
    result.virtual_s = simulation.clock.now
    result.events = simulation.events
    result.wall_s = time.perf_counter() - start
    result.memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result.adjacency = run.adjacency
    return result


def _run_job(job: tuple[Scenario, int, int]) -> SeedResult:
    return run_seed(*job)


def run_seeds(scenario: Scenario, seeds: Iterable[int], peers: int = 0, jobs: int = 1) -> Iterator[SeedResult]:
    """Yield results as they complete: in the order of the seeds only with one job."""
    work = [(scenario, seed, peers) for seed in seeds]
    if jobs <= 1 or len(work) <= 1:
        yield from map(_run_job, work)
        return
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(work))) as pool:
        yield from pool.imap_unordered(_run_job, work)


# -- results


def as_json(result: SeedResult) -> str:
    content = asdict(result)
    del content["adjacency"]
    return json.dumps(content)


def replay_command(scenario: Scenario, result: SeedResult) -> str:
    settings = scenario.settings.peer
    options = f"--peers {result.peers} --seeds {result.seed} --degree {settings.degree}"
    if settings.flood_bytes_max != load(scenario.source).settings.peer.flood_bytes_max:
        options += f" --dissemination {DisseminationMode.from_settings(settings).value}"
    if scenario.settings.hostile_count:
        options += f" --hostile {scenario.settings.hostile_count}"
    if scenario.settings.roster:
        options += " --roster"
    return f"broadloom sim run {scenario.source} {options} --trace"


def summary_table(results: Iterable[SeedResult]) -> "Table":
    """One row per scenario and size: how many seeds passed, and their metrics."""
    from rich.table import Table

    table = Table("scenario", "peers", "passed", "metrics: median (max)", "virtual s", "wall s", "MB")
    groups: dict[tuple[str, int], list[SeedResult]] = {}
    for result in results:
        groups.setdefault((result.scenario, result.peers), []).append(result)
    for (name, peers), group in groups.items():
        passed = sum(result.problem is None for result in group)
        color = "green" if passed == len(group) else "red"
        table.add_row(
            name,
            f"{peers:,}",
            f"[{color}]{passed} of {len(group)}[/]",
            format_metrics([result.metrics for result in group]),
            f"{median(result.virtual_s for result in group):.1f}",
            f"{median(result.wall_s for result in group):.1f}",
            f"{max(result.memory_mb for result in group):.0f}",
        )
    return table


def format_metrics(metrics: list[dict[str, float]]) -> str:
    """The median and the maximum of each metric over several seeds."""
    parts = []
    for name in dict.fromkeys(name for each in metrics for name in each):
        values = [each[name] for each in metrics if name in each]
        middle, largest = median(values), max(values)
        parts.append(f"{name} {middle:g}" + (f" ({largest:g})" if largest != middle else ""))
    return ", ".join(parts)
