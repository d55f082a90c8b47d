"""The command `broadloom sim`: parses options, runs scenarios and prints results."""

from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.report import as_json, replay_command, summary_table
from broadloom.testing.sim.scenario import Scenario, ScenarioError, builtin_names, load
from broadloom.testing.sim.seed_runner import SeedResult, parse_seeds, run_seed, run_seeds
from broadloom.testing.sim.simulation import Simulation, TapeFactory
from broadloom.testing.sim.step_checker import GuaranteeViolation
from broadloom.testing.sim.steps import Run

FAILED = 1
USAGE_ERROR = 2

out = Console()
err = Console(stderr=True)


class UsageError(ValueError):
    """The command line is invalid; the message says what to change."""


def sim(
    name: str,
    *,
    peers: str = "",
    seeds: str = "1..3",
    jobs: int = 2,
    degree: int = 0,
    dissemination: str = "",
    json: bool = False,
    trace: bool = False,
    draw: str = "",
    tape_factory: TapeFactory | None = None,
) -> int:
    """Run the command and return the exit status. `tape_factory` records the history of a single seed."""
    if name == "list":
        _print_scenarios()
        return 0
    try:
        scenario = load(name)
        if degree:
            scenario = scenario.with_degree(degree)
        if dissemination:
            scenario = scenario.with_dissemination(_parse_dissemination(dissemination))
        sizes = _parse_sizes(peers) or [scenario.peers]
        chosen_seeds = _parse_seeds(seeds)
        if trace:
            return _print_trace(scenario, sizes[0], chosen_seeds[0])
        if tape_factory is not None and len(sizes) * len(chosen_seeds) > 1:
            raise UsageError("--tape records one history: name one seed and one number of peers")
        results = _run_all(scenario, sizes, chosen_seeds, jobs, json=json, tape_factory=tape_factory)
        if draw:
            _draw(scenario, results[-1], draw)
    except (ScenarioError, UsageError, ValueError) as error:
        err.print(f"broadloom sim: {error}", style="red", markup=False, highlight=False)
        return USAGE_ERROR
    return FAILED if any(result.problem for result in results) else 0


def _parse_sizes(text: str) -> list[int]:
    try:
        sizes = [int(part.replace("_", "")) for part in text.split(",") if part]
    except ValueError:
        raise UsageError(f"--peers takes numbers such as 200 or 100,200, not {text!r}") from None
    if any(size < 1 for size in sizes):
        raise UsageError("--peers: at least one peer is needed")
    return sizes


def _parse_dissemination(text: str) -> DisseminationMode:
    try:
        return DisseminationMode(text)
    except ValueError:
        names = ", ".join(each.value for each in DisseminationMode)
        raise UsageError(f"--dissemination takes one of {names}, not {text!r}") from None


def _parse_seeds(text: str) -> list[int]:
    try:
        return parse_seeds(text)
    except ValueError as error:
        raise UsageError(f"--seeds: {error}") from None


def _print_scenarios() -> None:
    table = Table("scenario", "peers", "description", box=None, pad_edge=False)
    for name in builtin_names():
        scenario = load(name)
        table.add_row(name, str(scenario.peers), scenario.description)
    out.print(table)


def _run_all(
    scenario: Scenario, sizes: list[int], seeds: list[int], jobs: int, *, json: bool, tape_factory: TapeFactory | None
) -> list[SeedResult]:
    results: list[SeedResult] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        for size in sizes:
            task = progress.add_task(f"{scenario.name}, {size} peers", total=len(seeds))
            if tape_factory is not None:
                completed: Iterable[SeedResult] = [run_seed(scenario, seeds[0], size, tape_factory)]
            else:
                completed = run_seeds(scenario, seeds, size, jobs)
            for result in completed:
                results.append(result)
                progress.advance(task)
                if json:
                    print(as_json(result), flush=True)
                if result.problem:
                    err.print(f"seed {result.seed}: {result.problem}", style="red", markup=False, highlight=False)
                    err.print(f"  replay: {replay_command(scenario, result)}", markup=False, highlight=False)
    if not json:
        out.print(summary_table(results))
    return results


def _print_trace(scenario: Scenario, peers: int, seed: int) -> int:
    run = Run(Simulation(seed, scenario.settings, print), peers)
    try:
        scenario.run_steps(run)
    except GuaranteeViolation as violation:
        print(violation)
        return FAILED
    print(f"all guarantees held; {', '.join(f'{name} {value:g}' for name, value in run.metrics.items())}")
    return 0


def _draw(scenario: Scenario, result: SeedResult, path: str) -> None:
    from broadloom.testing.topology_drawing import caption_of, draw
    from broadloom.topology import analyze_topology

    if result.adjacency is None:
        raise UsageError(f"{scenario.name} does not measure the topology, so there is nothing to draw; try grow")
    caption = caption_of(analyze_topology(result.adjacency))
    draw(result.adjacency, path, degree=scenario.settings.peer.degree, title=scenario.name, caption=caption)
    err.print(f"drawing: {path}", markup=False)
