"""The acceptance table: `make soak`. About four hours on two cores.

Each row is an acceptance criterion with the command that runs it alone. Every fault runs in every dissemination mode.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing import get_context
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.scenario import load
from broadloom.testing.sim.seed_runner import SeedResult, format_metrics, run_seeds
from tools.exhaustive import count_violations

ORDER_LENGTH = 8


@dataclass(frozen=True, slots=True)
class AcceptanceCase:
    description: str
    scenario: str
    peers: int
    seeds: int
    degree: int = 4
    mode: DisseminationMode = DisseminationMode.MIXED
    roster: bool = False

    @property
    def command(self) -> str:
        degree = f" --degree {self.degree}" if self.degree != 4 else ""
        mode = f" --dissemination {self.mode.value}" if self.mode is not DisseminationMode.MIXED else ""
        roster = " --roster" if self.roster else ""
        return f"broadloom sim run {self.scenario} --peers {self.peers} --seeds 1..{self.seeds}{degree}{mode}{roster}"

    @property
    def in_other_modes(self) -> "list[AcceptanceCase]":
        """The same case with flooding only and with trees only, on fewer seeds."""
        seeds = max(self.seeds // 5, min(self.seeds, 4))
        modes = (DisseminationMode.FLOOD, DisseminationMode.TREE)
        return [
            replace(self, description=f"{self.description}; {mode.value}", seeds=seeds, mode=mode) for mode in modes
        ]


FAULT_CASES = (
    AcceptanceCase("40 of 200 killed at once under traffic", "kill", 200, 100),
    AcceptanceCase("half of 1,000 killed at once", "kill-half", 1000, 20),
    AcceptanceCase("nine of ten of 1,000 killed at once", "kill-most", 1000, 20),
    AcceptanceCase("40 of 200 hosts crash without a reset", "kill-hosts", 200, 20),
    AcceptanceCase("200 peers partitioned in halves for 20 s under traffic", "partition", 200, 20),
    AcceptanceCase("one-way partition for 20 s", "asymmetric-partition", 200, 20),
    AcceptanceCase("processes paused for 20 s", "pause", 200, 20),
    AcceptanceCase("connection resets and slow hosts under traffic", "degraded-network", 100, 20),
    AcceptanceCase("partitioned for longer than the retention time", "long-partition", 60, 20),
    AcceptanceCase("all faults in random order", "random-faults", 24, 100),
    AcceptanceCase("direct requests under all faults in random order", "requests", 24, 100),
    AcceptanceCase("the roster under all faults in random order", "random-faults", 12, 1000, roster=True),
    AcceptanceCase("receipts under all faults in random order", "receipts", 12, 1000),
    AcceptanceCase("agreed order, available, under all faults", "order-available", 6, 1000),
    AcceptanceCase("agreed order, safe, under all faults", "order-safe", 6, 1000),
    AcceptanceCase("tree parents with the most children killed", "kill-tree-parents", 60, 20),
    AcceptanceCase("hosts of tree parents crash without a reset", "kill-tree-hosts", 60, 20),
    AcceptanceCase("8 start at the same instant on an empty channel", "cold-start", 8, 200),
    AcceptanceCase("1,000 join at the same instant through one bootstrap host", "join-storm", 1000, 5),
    AcceptanceCase("18 % churn per minute for ten minutes", "churn", 500, 2),
)
CASES = (
    *(each for case in FAULT_CASES for each in (case, *case.in_other_modes)),
    *(
        AcceptanceCase(f"cost of a message; {mode.value}", "dissemination-cost", peers, 4, 4, mode)
        for peers in (32, 100, 400)
        for mode in DisseminationMode
    ),
    AcceptanceCase("vertex connectivity of grown fabrics", "connectivity", 50, 100),
    AcceptanceCase("vertex connectivity of grown fabrics", "connectivity", 100, 50),
    AcceptanceCase("vertex connectivity of grown fabrics", "connectivity", 200, 50),
    AcceptanceCase("growing", "grow", 100, 20),
    AcceptanceCase("growing", "grow", 200, 20),
    AcceptanceCase("growing", "grow", 450, 20),
    AcceptanceCase("growing", "grow", 1000, 20),
    AcceptanceCase("growing", "grow", 10_000, 2),
    *(AcceptanceCase(f"degree {degree}: 20 % killed at once", "kill", 100, 20, degree) for degree in (3, 5, 6, 8)),
    *(
        AcceptanceCase(f"degree {degree}: partitioned in halves", "partition", 60, 20, degree)
        for degree in (3, 5, 6, 8)
    ),
)


@dataclass(frozen=True, slots=True)
class Histories:
    """A module with `problem_of(seed)`."""

    name: str
    module: str
    seeds: int
    description: str


HISTORIES = (
    Histories(
        "mailboxes", "tests.mailboxes.histories", 5000, "acknowledged values survive kills, partitions and joins"
    ),
    Histories("switch", "tests.switch.history", 5000, "one handler and one end for each request, under all faults"),
    Histories("delivery", "tests.apps.delivery.histories", 200, "billed time is true time, for 40 subscribers each"),
    Histories("conference", "tests.apps.conference.histories", 5000, "one leader in each partition, equal items"),
    Histories("games", "tests.apps.game.histories", 10_000, "equal states at rest, and one stand-in for each role"),
    Histories("auction", "tests.apps.auction.histories", 10_000, "one winner, and no bid with a receipt is lost"),
)


def main(
    jobs: Annotated[int, typer.Option(min=1, help="Parallel runs.")] = 2,
    only: Annotated[str, typer.Option(help="Only this scenario, or `orders`, `mailboxes`, `switch`, …")] = "",
) -> None:
    """Run all cases and print the table. Exit status: 1 if any guarantee was violated."""
    console = Console(width=160)
    table = Table("case", "command", "passed", "metrics: median (max)", "virtual s", "wall s", "MB")
    violations = 0
    for case in CASES:
        if only not in ("", case.scenario):
            continue
        results = _run_case(case, jobs, console)
        passed = sum(result.problem is None for result in results)
        violations += len(results) - passed
        virtual, wall = max(each.virtual_s for each in results), sum(each.wall_s for each in results)
        memory = max(each.memory_mb for each in results)
        row = (f"{passed} of {len(results)}", format_metrics(results), f"{virtual:.0f}", f"{wall:.0f}", f"{memory:.0f}")
        table.add_row(case.description, case.command, *row)
    if only in ("", "orders"):
        start = time.perf_counter()
        run_count, failed = count_violations(ORDER_LENGTH, jobs)
        violations += failed
        wall = time.perf_counter() - start
        case_text = f"1 to 8 peers, every order of {ORDER_LENGTH} joins, leaves and crashes, in each mode"
        table.add_row(case_text, "", f"{run_count - failed} of {run_count}", "", "", f"{wall:.0f}", "")
    for histories in HISTORIES:
        if only in ("", histories.name):
            violations += _run_histories(histories, table, jobs, console)
    console.print(table)
    sys.exit(1 if violations else 0)


def _run_histories(histories: Histories, table: Table, jobs: int, console: Console) -> int:
    """Random histories of a layer or an application, one per seed; return how many failed."""
    start = time.perf_counter()
    failed = 0
    problem_of: Callable[[int], str] = import_module(histories.module).problem_of
    with get_context("fork").Pool(jobs) as pool:
        for problem in pool.imap_unordered(problem_of, range(1, histories.seeds + 1)):
            if problem:
                failed += 1
                console.print(problem, style="red", markup=False)
    passed, wall = f"{histories.seeds - failed} of {histories.seeds}", f"{time.perf_counter() - start:.0f}"
    command = f"python -m {histories.module} 1 {histories.seeds}"
    table.add_row(f"{histories.name}: {histories.description}", command, passed, "", "", wall, "")
    return failed


def _run_case(case: AcceptanceCase, jobs: int, console: Console) -> list[SeedResult]:
    scenario = load(case.scenario).with_degree(case.degree).with_dissemination(case.mode)
    scenario = scenario.with_roster() if case.roster else scenario
    results = []
    with console.status(case.command) as status:
        for result in run_seeds(scenario, range(1, case.seeds + 1), case.peers, jobs):
            results.append(result)
            status.update(f"{case.command}: {len(results)} of {case.seeds}")
            if result.problem:
                console.print(f"{case.scenario}, seed {result.seed}: {result.problem}", style="red", markup=False)
    console.print(f"{case.command}: {sum(each.wall_s for each in results):.0f} s", style="dim", highlight=False)
    return results


if __name__ == "__main__":
    typer.run(main)
