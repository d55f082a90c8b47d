"""The whole run: all cases of all systems, in interleaved rounds, with the time left."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from bench.plan import Case, Plan
from bench.result_row import Row
from bench.systems import SYSTEMS, System
from bench.workloads import measure

GUESS_S = {
    "throughput": 6.0,
    "latency": 8.0,
    "all-to-all": 6.0,
    "join": 7.0,
    "scale": 6.0,
    "frozen": 20.0,
    "request": 20.0,
    "switch": 20.0,
    "mailbox": 20.0,
    "topics": 8.0,
}
"""How long a case takes, until we know."""


@dataclass(frozen=True, slots=True)
class Step:
    round: int
    case: Case
    system: System


def steps_of(plan: Plan) -> list[Step]:
    """In each round the systems come in another order, case by case."""
    steps = []
    for round_ in range(plan.rounds):
        for case in plan.cases():
            if round_ >= plan.rounds_of(case):
                continue
            systems = [SYSTEMS[name] for name in plan.systems_of(case)]
            random.shuffle(systems)
            steps += [Step(round_, case, system) for system in systems]
    return steps


class TimeEstimator:
    """Guesses the time left from the times that the same steps have taken."""

    def __init__(self) -> None:
        self._taken_s: dict[tuple[object, ...], float] = {}

    def record(self, step: Step, seconds: float) -> None:
        self._taken_s[step.case.key, step.system.name] = seconds

    def left_s(self, steps: list[Step]) -> float:
        return sum(self._guess_s(step) for step in steps)

    def _guess_s(self, step: Step) -> float:
        if step.system.missing() or step.system.unable(step.case):
            return 0.0
        guess_s = GUESS_S[step.case.workload] * max(1.0, step.case.receivers / 16)
        return self._taken_s.get((step.case.key, step.system.name), guess_s)


async def run(plan: Plan, console: Console, keep: Callable[[list[Row]], None]) -> list[Row]:
    """Every row so far is kept after every step, so that an interrupted run is not lost."""
    steps, rows, clock = steps_of(plan), [], TimeEstimator()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}")
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(steps), left="")
        for number, step in enumerate(steps):
            left = f"{clock.left_s(steps[number:]) / 60:.0f} min left"
            progress.update(task, description=f"{step.system.name}: {step.case}", left=left)
            began_s = time.monotonic()
            measured = await measure(step.system, step.case, plan)
            clock.record(step, time.monotonic() - began_s)
            rows += [row | {"round": step.round} for row in measured]
            keep(rows)
            console.print(progress_line(step, measured[-1]), markup=False, highlight=False, soft_wrap=True)
            progress.advance(task)
    return rows


def progress_line(step: Step, row: Row) -> str:
    """One line of progress."""
    head = f"{step.round + 1}  {step.case}  {step.system.name}: "
    if "error" in row:
        return head + " ".join(row["error"].split())
    names = (
        "requests_per_s",
        "cpu_us_per_request",
        "deliveries_per_s",
        "cpu_us_per_delivery",
        "lost",
        "p50_ms",
        "p99_ms",
        "join_ms",
        "gaps",
    )
    more = ("others_kept", "stall_s", "lacking", "missed", "caught_up_s", "foreign_share")
    return head + ", ".join(f"{name} {row[name]:.4g}" for name in names + more if row.get(name) is not None)
