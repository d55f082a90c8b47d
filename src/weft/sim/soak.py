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

from weft.sim.command import figures
from weft.sim.orders import count_broken
from weft.sim.scenario import load
from weft.sim.seeds import Outcome, run_seeds
from weft.sim.spread import Spread

ORDERS_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the table."""

    what: str
    scenario: str
    peers: int
    seeds: int
    degree: int = 4
    spread: Spread = Spread.MIXED

    @property
    def command(self) -> str:
        degree = f" --degree {self.degree}" if self.degree != 4 else ""
        spread = f" --spread {self.spread.value}" if self.spread is not Spread.MIXED else ""
        return f"weft sim {self.scenario} --peers {self.peers} --seeds 1..{self.seeds}{degree}{spread}"

    @property
    def in_other_ways(self) -> "list[Bar]":
        """The same with all messages flooded, and with all along trees, on fewer seeds."""
        seeds = max(self.seeds // 5, min(self.seeds, 4))
        ways = (Spread.FLOOD, Spread.TREE)
        return [replace(self, what=f"{self.what}; {way.value}", seeds=seeds, spread=way) for way in ways]


FAULTS = (
    Bar("40 of 200 killed at once under traffic", "kill", 200, 100),
    Bar("half of 1,000 killed at once", "kill-half", 1000, 20),
    Bar("nine of ten of 1,000 killed at once", "kill-most", 1000, 20),
    Bar("40 of 200 hosts die, only silence tells", "kill-hosts", 200, 20),
    Bar("two halves of 200 apart for 20 s under traffic", "split", 200, 20),
    Bar("frames in one direction held back for 20 s", "one-way", 200, 20),
    Bar("processes stopped for 20 s and continued", "freeze", 200, 20),
    Bar("connections reset, hosts slow, under traffic", "rough", 100, 20),
    Bar("apart for longer than messages are kept", "long-split", 60, 20),
    Bar("all of it in random order", "trouble", 24, 100),
    Bar("those die that feed the most others", "saw", 60, 20),
    Bar("their hosts die, nobody is told", "saw-hosts", 60, 20),
    Bar("8 start at the same instant on an empty channel", "first", 8, 200),
    Bar("1,000 join at the same instant through one portal", "storm", 1000, 5),
    Bar("18 % churn a minute for ten minutes", "churn", 500, 2),
)
BARS = (
    *(each for bar in FAULTS for each in (bar, *bar.in_other_ways)),
    *(
        Bar(f"what a message costs; {way.value}", "cost", peers, 4, 4, way)
        for peers in (32, 100, 400)
        for way in Spread
    ),
    Bar("vertex connectivity of grown fabrics", "connectivity", 50, 100),
    Bar("vertex connectivity of grown fabrics", "connectivity", 100, 50),
    Bar("vertex connectivity of grown fabrics", "connectivity", 200, 50),
    Bar("growing", "grow", 100, 20),
    Bar("growing", "grow", 200, 20),
    Bar("growing", "grow", 450, 20),
    Bar("growing", "grow", 1000, 20),
    Bar("growing", "grow", 10_000, 2),
    *(Bar(f"degree {degree}: 20 % killed at once", "kill", 100, 20, degree) for degree in (3, 5, 6, 8)),
    *(Bar(f"degree {degree}: two halves apart", "split", 60, 20, degree) for degree in (3, 5, 6, 8)),
)


def main(
    jobs: Annotated[int, typer.Option(min=1, help="Histories played at the same time.")] = 2,
    only: Annotated[str, typer.Option(help="Only rows of this scenario (or `orders`).")] = "",
) -> None:
    """Run the whole table and print it; ends with 1 if any promise was broken."""
    console = Console(width=160)
    table = Table("what", "command", "held", "median of the figures (largest)", "virtual s", "wall s", "MB")
    broken = 0
    for bar in BARS:
        if only not in ("", bar.scenario):
            continue
        outcomes = _run(bar, jobs, console)
        held = sum(outcome.problem is None for outcome in outcomes)
        broken += len(outcomes) - held
        virtual, wall = max(each.virtual_s for each in outcomes), sum(each.wall_s for each in outcomes)
        memory = max(each.memory_mb for each in outcomes)
        row = (f"{held} of {len(outcomes)}", figures(outcomes), f"{virtual:.0f}", f"{wall:.0f}", f"{memory:.0f}")
        table.add_row(bar.what, bar.command, *row)
    if only in ("", "orders"):
        start = time.perf_counter()
        played, failed = count_broken(ORDERS_LENGTH, jobs)
        broken += failed
        wall = time.perf_counter() - start
        what = f"1 to 8 peers, every order of {ORDERS_LENGTH} joins, leaves and deaths, in each way"
        table.add_row(what, "", f"{played - failed} of {played}", "", "", f"{wall:.0f}", "")
    console.print(table)
    sys.exit(1 if broken else 0)


def _run(bar: Bar, jobs: int, console: Console) -> list[Outcome]:
    scenario = load(bar.scenario).with_degree(bar.degree).with_spread(bar.spread)
    outcomes = []
    with console.status(bar.command) as status:
        for outcome in run_seeds(scenario, range(1, bar.seeds + 1), bar.peers, jobs):
            outcomes.append(outcome)
            status.update(f"{bar.command}: {len(outcomes)} of {bar.seeds}")
            if outcome.problem:
                console.print(f"{bar.scenario}, seed {outcome.seed}: {outcome.problem}", style="red", markup=False)
    console.print(f"{bar.command}: {sum(each.wall_s for each in outcomes):.0f} s", style="dim", highlight=False)
    return outcomes


if __name__ == "__main__":
    typer.run(main)
