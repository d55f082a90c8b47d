"""`broadloom sim`: scenarios in the simulator."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from broadloom.cli.exit_codes import FAILURE, SUCCESS, UsageError, require_extra, usage_errors
from broadloom.cli.options import DegreeOption, JsonOption, SeedsOption, TapeOption, argument, command_group, option
from broadloom.cli.output import ProgressBar, console, print_rows
from broadloom.cli.record import open_tape
from broadloom.cli.runner import command, print_error

if TYPE_CHECKING:
    from broadloom.record import Tape
    from broadloom.testing.sim.dissemination import DisseminationMode
    from broadloom.testing.sim.scenario import Scenario
    from broadloom.testing.sim.seed_runner import SeedResult
    from broadloom.testing.sim.simulation import TapeFactory

sim = command_group(
    help="""Run scenarios in the simulator.

    The same code that runs on sockets runs here on a virtual network and clock. A seed determines everything that
    happens.

    Examples:

    - `broadloom sim list`
    - `broadloom sim run kill --peers 200 --seeds 1..100`
    """,
)


@command("sim run", sim)
def run(
    scenario: Annotated[str, argument("A built-in scenario or a TOML file.", "SCENARIO")],
    peers: Annotated[str, option("Number of peers, or several as 100,200.", "N,…")] = "",
    seeds: SeedsOption = "1..3",
    jobs: Annotated[int, option("Parallel runs.", "N", min=1)] = 2,
    degree: DegreeOption = 0,
    dissemination: Annotated[
        str,
        option(
            "`flood` (every link: lowest latency, most traffic), `tree` (Plumtree), or `mixed` (flood small messages, "
            "send large ones along trees; the default of Broadloom).",
            "MODE",
        ),
    ] = "",
    hostile: Annotated[
        int, option("Hostile members, on a signed channel; the guarantees must hold for the others.", "N", min=0)
    ] = 0,
    roster: Annotated[bool, option("Peers keep a roster of all members, and its guarantees are checked.")] = False,
    trace: Annotated[bool, option("Print every event (one seed).")] = False,
    draw: Annotated[Path | None, option("Draw the final fabric (one seed) as .svg or .png.", "FILE")] = None,
    tape: TapeOption = None,
    json: JsonOption = False,
) -> int:
    """Run a scenario in the simulator and check every guarantee.

    Exit status 1 if a guarantee was violated; the command to replay that seed is printed. A tape (one seed) has the
    same format as that of real peers. `--json` prints one object per seed.

    Examples:

    - `broadloom sim run kill --peers 200 --seeds 1..100`
    - `broadloom sim run grow --peers 100,1000 --draw fabric.svg`
    - `broadloom sim run kill --peers 12 --seeds 4 --trace`
    """
    from broadloom.testing.sim.scenario import load
    from broadloom.testing.sim.seed_runner import parse_seeds

    with usage_errors("--seeds: "):
        chosen_seeds = parse_seeds(seeds)
    with usage_errors():
        loaded = load(scenario)
        if degree:
            loaded = loaded.with_degree(degree)
        if hostile:
            loaded = loaded.with_hostile(hostile)
        if roster:
            loaded = loaded.with_roster()
        if dissemination:
            loaded = loaded.with_dissemination(_parse_dissemination(dissemination))
    sizes = _parse_sizes(peers) or [loaded.peers]
    if trace:
        return _print_trace(loaded, sizes[0], chosen_seeds[0])
    if tape is not None and len(sizes) * len(chosen_seeds) > 1:
        raise UsageError("--tape records a single run: use one seed and one number of peers")
    tapes: list[Tape] = []

    def make_tape(clock: Callable[[], float]) -> "Tape":
        assert tape is not None
        tapes.append(open_tape(tape, block_when_full=True, wall_clock=clock))
        return tapes[-1]

    try:
        results = _run_all(loaded, sizes, chosen_seeds, jobs, make_tape if tape is not None else None, json=json)
    finally:
        for each in tapes:
            each.close()
    if draw is not None:
        _draw(loaded, results[-1], draw)
    return FAILURE if any(result.problem for result in results) else SUCCESS


@command("sim list", sim)
def list_scenarios(json: JsonOption = False) -> None:
    """List the built-in scenarios.

    Examples:

    - `broadloom sim list`
    """
    from broadloom.testing.sim.scenario import builtin_names, load

    scenarios = map(load, builtin_names())
    print_rows(
        ({"scenario": each.name, "peers": each.peers, "description": each.description} for each in scenarios), json=json
    )


def _parse_sizes(text: str) -> list[int]:
    try:
        sizes = [int(part.replace("_", "")) for part in text.split(",") if part]
    except ValueError:
        raise UsageError(f"--peers must be a number or a list, as 200 or 100,200, not {text!r}") from None
    if any(size < 1 for size in sizes):
        raise UsageError("--peers must be at least 1")
    return sizes


def _parse_dissemination(text: str) -> "DisseminationMode":
    from broadloom.testing.sim.dissemination import DisseminationMode

    try:
        return DisseminationMode(text)
    except ValueError:
        names = ", ".join(each.value for each in DisseminationMode)
        raise UsageError(f"--dissemination must be one of {names}, not {text!r}") from None


def _run_all(
    scenario: "Scenario",
    sizes: list[int],
    seeds: list[int],
    jobs: int,
    tape_factory: "TapeFactory | None",
    *,
    json: bool,
) -> "list[SeedResult]":
    from broadloom.testing.sim.seed_runner import as_json, replay_command, run_seed, run_seeds, summary_table

    results: list[SeedResult] = []
    with ProgressBar(scenario.name, len(sizes) * len(seeds)) as progress:
        for size in sizes:
            progress.phase(f"{scenario.name}, {size} peers")
            if tape_factory is not None:
                completed: Iterable[SeedResult] = [run_seed(scenario, seeds[0], size, tape_factory)]
            else:
                completed = run_seeds(scenario, seeds, size, jobs)
            for result in completed:
                results.append(result)
                progress.advance()
                if json:
                    print(as_json(result), flush=True)
                if result.problem:
                    print_error("sim run", f"seed {result.seed}: {result.problem}")
                    print_error("sim run", f"replay: {replay_command(scenario, result)}")
    if not json:
        console().print(summary_table(results))
    return results


def _print_trace(scenario: "Scenario", peers: int, seed: int) -> int:
    from broadloom.testing.sim.simulation import Simulation
    from broadloom.testing.sim.step_checker import GuaranteeViolation
    from broadloom.testing.sim.steps import Run

    run = Run(Simulation(seed, scenario.settings, print), peers)
    try:
        scenario.run_steps(run)
    except GuaranteeViolation as violation:
        print(violation)
        return FAILURE
    print(f"all guarantees held; {', '.join(f'{name} {value:g}' for name, value in run.metrics.items())}")
    return SUCCESS


def _draw(scenario: "Scenario", result: "SeedResult", path: Path) -> None:
    require_extra("sim")
    from broadloom.testing.topology_drawing import caption_of, draw
    from broadloom.topology import analyze_topology

    if result.adjacency is None:
        raise UsageError(f"nothing to draw: the scenario {scenario.name} does not measure the fabric; try grow")
    caption = caption_of(analyze_topology(result.adjacency))
    with usage_errors():
        draw(result.adjacency, str(path), degree=scenario.settings.peer.degree, title=scenario.name, caption=caption)
