"""`weft sim`: from the words of the command line to histories, and from outcomes to tables."""

import json as json_module
from collections.abc import Iterable
from dataclasses import asdict
from statistics import median

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from weft.sim.scenario import Scenario, ScenarioError, built_in, load
from weft.sim.seeds import Outcome, run_seed, run_seeds
from weft.sim.simulation import MakeTape, Simulation
from weft.sim.spread import Spread
from weft.sim.steps import Run
from weft.sim.watch import PromiseBroken

FAILED = 1
WRONG_USE = 2

out = Console()
err = Console(stderr=True)


class WrongUse(ValueError):
    """The words of the command line do not fit; says what would."""


def sim(
    name: str,
    *,
    peers: str = "",
    seeds: str = "1..3",
    jobs: int = 2,
    degree: int = 0,
    spread: str = "",
    json: bool = False,
    trace: bool = False,
    draw: str = "",
    make_tape: MakeTape | None = None,
) -> int:
    """The whole command; returns the exit code. `make_tape` records the history of the one seed."""
    if name == "list":
        _list()
        return 0
    try:
        scenario = load(name)
        if degree:
            scenario = scenario.with_degree(degree)
        if spread:
            scenario = scenario.with_spread(_spread(spread))
        sizes = _sizes(peers) or [scenario.peers]
        wanted = _seeds(seeds)
        if trace:
            return _trace(scenario, sizes[0], wanted[0])
        if make_tape is not None and len(sizes) * len(wanted) > 1:
            raise WrongUse("--tape records one history: name one seed and one number of peers")
        outcomes = _play(scenario, sizes, wanted, jobs, json=json, make_tape=make_tape)
        if draw:
            _draw(scenario, outcomes[-1], draw)
    except (ScenarioError, WrongUse, ValueError) as problem:
        err.print(f"weft sim: {problem}", style="red", markup=False, highlight=False)
        return WRONG_USE
    return FAILED if any(outcome.problem for outcome in outcomes) else 0


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(part.replace("_", "")) for part in text.split(",") if part]
    except ValueError:
        raise WrongUse(f"--peers takes numbers as in 200 or 100,200, not {text!r}") from None
    if any(size < 1 for size in sizes):
        raise WrongUse("--peers: at least one peer is needed")
    return sizes


def _spread(text: str) -> Spread:
    try:
        return Spread(text)
    except ValueError:
        ways = ", ".join(each.value for each in Spread)
        raise WrongUse(f"--spread takes one of {ways}, not {text!r}") from None


def _seeds(text: str) -> list[int]:
    first, dots, last = text.partition("..")
    try:
        numbers = list(range(int(first), int(last if dots else first) + 1))
    except ValueError:
        raise WrongUse(f"--seeds takes a number or a range as in 1..20, not {text!r}") from None
    if not numbers:
        raise WrongUse(f"--seeds: there is no number in {text}")
    return numbers


def _list() -> None:
    table = Table("scenario", "peers", "what happens", box=None, pad_edge=False)
    for name in built_in():
        scenario = load(name)
        table.add_row(name, str(scenario.peers), scenario.about)
    out.print(table)


def _play(
    scenario: Scenario, sizes: list[int], seeds: list[int], jobs: int, *, json: bool, make_tape: MakeTape | None
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        for size in sizes:
            task = progress.add_task(f"{scenario.name}, {size} peers", total=len(seeds))
            if make_tape is not None:
                played: Iterable[Outcome] = [run_seed(scenario, seeds[0], size, make_tape)]
            else:
                played = run_seeds(scenario, seeds, size, jobs)
            for outcome in played:
                outcomes.append(outcome)
                progress.advance(task)
                if json:
                    print(as_json(outcome), flush=True)
                if outcome.problem:
                    err.print(f"seed {outcome.seed}: {outcome.problem}", style="red", markup=False, highlight=False)
                    err.print(f"  replay: {replay_command(scenario, outcome)}", markup=False, highlight=False)
    if not json:
        out.print(summary(outcomes))
    return outcomes


def as_json(outcome: Outcome) -> str:
    content = asdict(outcome)
    del content["adjacency"]
    return json_module.dumps(content)


def replay_command(scenario: Scenario, outcome: Outcome) -> str:
    settings = scenario.settings.peer
    as_written = load(scenario.source).settings.peer
    way = f" --spread {Spread.of(settings).value}" if settings.flood_bytes_max != as_written.flood_bytes_max else ""
    which = f"--peers {outcome.peers} --seeds {outcome.seed} --degree {settings.degree}{way}"
    return f"weft sim {scenario.source} {which} --trace"


def summary(outcomes: Iterable[Outcome]) -> Table:
    """One row a scenario and size: how many histories held, and the medians of the figures."""
    table = Table("scenario", "peers", "held", "median of the figures (largest)", "virtual s", "wall s", "MB")
    groups: dict[tuple[str, int], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.scenario, outcome.peers), []).append(outcome)
    for (name, peers), group in groups.items():
        held = sum(outcome.problem is None for outcome in group)
        colour = "green" if held == len(group) else "red"
        table.add_row(
            name,
            f"{peers:,}",
            f"[{colour}]{held} of {len(group)}[/]",
            figures(group),
            f"{median(outcome.virtual_s for outcome in group):.1f}",
            f"{median(outcome.wall_s for outcome in group):.1f}",
            f"{max(outcome.memory_mb for outcome in group):.0f}",
        )
    return table


def figures(group: list[Outcome]) -> str:
    names = dict.fromkeys(name for outcome in group for name in outcome.figures)
    parts = []
    for name in names:
        values = [outcome.figures[name] for outcome in group if name in outcome.figures]
        middle, most = median(values), max(values)
        parts.append(f"{name} {middle:g}" + (f" ({most:g})" if most != middle else ""))
    return ", ".join(parts)


def _trace(scenario: Scenario, peers: int, seed: int) -> int:
    """One history in full, to standard output."""
    run = Run(Simulation(seed, scenario.settings, print), peers)
    try:
        scenario.play(run)
    except PromiseBroken as broken:
        print(broken)
        return FAILED
    print(f"all promises held; {', '.join(f'{name} {value:g}' for name, value in run.figures.items())}")
    return 0


def _draw(scenario: Scenario, outcome: Outcome, path: str) -> None:
    from weft.sim.draw import caption_of, draw
    from weft.sim.graph import shape_of

    if outcome.adjacency is None:
        raise WrongUse(f"{scenario.name} does not measure the fabric, so there is nothing to draw; try grow")
    caption = caption_of(shape_of(outcome.adjacency))
    draw(outcome.adjacency, path, degree=scenario.settings.peer.degree, title=scenario.name, caption=caption)
    err.print(f"drawn: {path}", markup=False)
