"""The full table of what the fabric must show: `make soak`. About half an hour on two cores.

Each row is a bar with the scenario that shows it; every row can be run alone with the command that it prints. Whatever
goes wrong in a scenario goes wrong in each way of spreading.
"""

import sys
import time
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.exhaustive import count_violations
from broadloom.testing.sim.report import format_metrics
from broadloom.testing.sim.scenario import load
from broadloom.testing.sim.seed_runner import SeedResult, run_seeds

ORDER_LENGTH = 8


@dataclass(frozen=True, slots=True)
class AcceptanceCase:
    """One line of the table."""

    description: str
    scenario: str
    peers: int
    seeds: int
    degree: int = 4
    mode: DisseminationMode = DisseminationMode.MIXED

    @property
    def command(self) -> str:
        degree = f" --degree {self.degree}" if self.degree != 4 else ""
        spread = f" --dissemination {self.mode.value}" if self.mode is not DisseminationMode.MIXED else ""
        return f"broadloom sim run {self.scenario} --peers {self.peers} --seeds 1..{self.seeds}{degree}{spread}"

    @property
    def in_other_modes(self) -> "list[AcceptanceCase]":
        """The same with all messages flooded, and with all along trees, on fewer seeds."""
        seeds = max(self.seeds // 5, min(self.seeds, 4))
        modes = (DisseminationMode.FLOOD, DisseminationMode.TREE)
        return [replace(self, description=f"{self.description}; {way.value}", seeds=seeds, mode=way) for way in modes]


FAULT_CASES = (
    AcceptanceCase("40 of 200 killed at once under traffic", "kill", 200, 100),
    AcceptanceCase("half of 1,000 killed at once", "kill-half", 1000, 20),
    AcceptanceCase("nine of ten of 1,000 killed at once", "kill-most", 1000, 20),
    AcceptanceCase("40 of 200 hosts die, only silence tells", "kill-hosts", 200, 20),
    AcceptanceCase("two halves of 200 apart for 20 s under traffic", "partition", 200, 20),
    AcceptanceCase("frames in one direction held back for 20 s", "asymmetric-partition", 200, 20),
    AcceptanceCase("processes stopped for 20 s and continued", "pause", 200, 20),
    AcceptanceCase("connections reset, hosts slow, under traffic", "degraded-network", 100, 20),
    AcceptanceCase("apart for longer than messages are kept", "long-partition", 60, 20),
    AcceptanceCase("all of it in random order", "random-faults", 24, 100),
    AcceptanceCase("those die that feed the most others", "kill-tree-parents", 60, 20),
    AcceptanceCase("their hosts die, nobody is told", "kill-tree-hosts", 60, 20),
    AcceptanceCase("8 start at the same instant on an empty channel", "cold-start", 8, 200),
    AcceptanceCase("1,000 join at the same instant through one portal", "join-storm", 1000, 5),
    AcceptanceCase("18 % churn a minute for ten minutes", "churn", 500, 2),
)
CASES = (
    *(each for bar in FAULT_CASES for each in (bar, *bar.in_other_modes)),
    *(
        AcceptanceCase(f"what a message costs; {way.value}", "dissemination-cost", peers, 4, 4, way)
        for peers in (32, 100, 400)
        for way in DisseminationMode
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
    *(AcceptanceCase(f"degree {degree}: two halves apart", "partition", 60, 20, degree) for degree in (3, 5, 6, 8)),
)


def main(
    jobs: Annotated[int, typer.Option(min=1, help="Histories played at the same time.")] = 2,
    only: Annotated[str, typer.Option(help="Only rows of this scenario (or `orders`).")] = "",
) -> None:
    """Run the whole table and print it; ends with 1 if any promise was broken."""
    console = Console(width=160)
    table = Table("what", "command", "held", "median of the figures (largest)", "virtual s", "wall s", "MB")
    violations = 0
    for case in CASES:
        if only not in ("", case.scenario):
            continue
        results = _run_case(case, jobs, console)
        passed = sum(outcome.problem is None for outcome in results)
        violations += len(results) - passed
        virtual, wall = max(each.virtual_s for each in results), sum(each.wall_s for each in results)
        memory = max(each.memory_mb for each in results)
        row = (f"{passed} of {len(results)}", format_metrics(results), f"{virtual:.0f}", f"{wall:.0f}", f"{memory:.0f}")
        table.add_row(case.description, case.command, *row)
    if only in ("", "orders"):
        start = time.perf_counter()
        played, failed = count_violations(ORDER_LENGTH, jobs)
        violations += failed
        wall = time.perf_counter() - start
        what = f"1 to 8 peers, every order of {ORDER_LENGTH} joins, leaves and deaths, in each way"
        table.add_row(what, "", f"{played - failed} of {played}", "", "", f"{wall:.0f}", "")
    console.print(table)
    sys.exit(1 if violations else 0)


def _run_case(case: AcceptanceCase, jobs: int, console: Console) -> list[SeedResult]:
    scenario = load(case.scenario).with_degree(case.degree).with_dissemination(case.mode)
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
