"""Sweeps over many seeds within a given time: `make soak`.

Every sweep whose share of the time is long enough for one seed runs at least one; the others are listed as not run. The
rest of the time is divided by weight: the next seed is always one of the sweep that has had the least time for its
weight, so that results are even whenever the soak ends.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from broadloom.testing.sim.seed_runner import format_metrics, parse_seeds
from tools.seed_pool import Job, JobResult, SeedPool
from tools.sweeps import SWEEPS, Sweep

MINUTES = 45.0
STATUS_S = 60.0
"""Time between two lines about the progress."""
INTERRUPTED = 130


@dataclass(slots=True)
class SweepProgress:
    """How far a sweep is."""

    sweep: Sweep
    first: int
    target: int
    started: int = 0
    finished: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_mb: float = 0.0
    failed: dict[int, str] = field(default_factory=dict)
    """What went wrong, by seed."""
    metrics: list[dict[str, float]] = field(default_factory=list)
    note: str = ""
    """Why it does not run."""

    @property
    def seed_s(self) -> float:
        return self.wall_s / self.finished if self.finished else self.sweep.seed_s

    @property
    def needed_s(self) -> float:
        return self.seed_s if self.started else 0.0

    @property
    def is_open(self) -> bool:
        return self.started < self.target and not self.note

    @property
    def rank(self) -> tuple[float, float]:
        """The smallest is next: the least time for its weight, at the beginning the shortest seed."""
        running_s = (self.started - self.finished) * self.seed_s
        return (self.wall_s + running_s) / self.sweep.weight, self.sweep.seed_s

    def next_job(self) -> Job:
        seed = self.first + self.started
        self.started += 1
        return Job(self.sweep.name, self.sweep.run, seed, self.sweep.deadline_s)

    def add(self, result: JobResult) -> None:
        self.finished += 1
        self.wall_s += result.wall_s
        self.cpu_s += result.cpu_s
        self.memory_mb = max(self.memory_mb, result.memory_mb)
        self.metrics.append(dict(result.outcome.metrics))
        if result.outcome.problem:
            self.failed[result.job.seed] = result.outcome.problem

    def as_dict(self) -> dict[str, object]:
        return {
            "sweep": self.sweep.name,
            "first": self.first,
            "seeds": self.finished,
            "target": self.target,
            "failed": [
                {"seed": seed, "problem": problem, "replay": self.sweep.replay(seed)}
                for seed, problem in self.failed.items()
            ],
            "metrics": format_metrics(self.metrics),
            "wall_s": round(self.wall_s, 3),
            "cpu_s": round(self.cpu_s, 3),
            "memory_mb": round(self.memory_mb),
            "note": self.note,
        }


class Soak:
    def __init__(self, sweeps: Iterable[SweepProgress], minutes: float | None, pool: SeedPool) -> None:
        """Without `minutes` all sweeps run to their target."""
        self.sweeps = {each.sweep.name: each for each in sweeps}
        self._pool = pool
        self._console = Console(stderr=True)
        self._limit_s = minutes * 60 if minutes is not None else float("inf")
        self._started_at = pool.now()
        self._next_status_s = STATUS_S
        if minutes is not None:
            self._leave_out_long_seeds()

    def _leave_out_long_seeds(self) -> None:
        weights = sum(each.sweep.weight for each in self.sweeps.values())
        for each in self.sweeps.values():
            share_s = self._limit_s * self._pool.size * each.sweep.weight / weights
            if each.sweep.seed_s > share_s:
                each.note = f"not run: a seed takes {each.sweep.seed_s:.0f} s, its share is {share_s:.0f} s"

    @property
    def elapsed_s(self) -> float:
        return self._pool.now() - self._started_at

    def run(self) -> None:
        while True:
            while self._pool.has_room and (chosen := self._choose()) is not None:
                self._pool.start(chosen.next_job())
            if not self._pool.is_busy:
                return
            for result in self._pool.wait(STATUS_S):
                self._on_result(result)
            if self.elapsed_s >= self._next_status_s:
                self._next_status_s = self.elapsed_s + STATUS_S
                self._report(self.summary())

    def _choose(self) -> SweepProgress | None:
        """The first seed of a sweep starts while there is time, others only if they are likely to end in time."""
        left_s = self._limit_s - self.elapsed_s
        possible = [each for each in self.sweeps.values() if each.is_open and each.needed_s < left_s]
        return min(possible, key=lambda each: each.rank, default=None)

    def _on_result(self, result: JobResult) -> None:
        progress = self.sweeps[result.job.name]
        progress.add(result)
        if result.outcome.problem:
            replay = progress.sweep.replay(result.job.seed)
            self._report(f"FAILED {result.job.name}: {result.outcome.problem}\n  replay: {replay}")
        if progress.finished == progress.target:
            count = f"{progress.finished:,} seeds, {len(progress.failed)} failed, {progress.wall_s:.0f} s"
            self._report(f"{progress.sweep.name} is complete: {count}")

    def _report(self, text: str) -> None:
        minutes, seconds = divmod(int(self.elapsed_s), 60)
        self._console.print(f"{minutes:3}:{seconds:02} {text}", markup=False, highlight=False, soft_wrap=True)

    def summary(self) -> str:
        seeds = sum(each.finished for each in self.sweeps.values())
        begun = sum(bool(each.finished) for each in self.sweeps.values())
        complete = sum(each.finished == each.target for each in self.sweeps.values())
        failed = sum(len(each.failed) for each in self.sweeps.values())
        sweeps = f"{begun} of {len(self.sweeps)} sweeps ({complete} complete)"
        return f"{sweeps}, {seeds:,} seeds, {failed} failed, {self.elapsed_s:.0f} s"

    # -- results

    @property
    def has_failed(self) -> bool:
        return any(each.failed for each in self.sweeps.values())

    def print_results(self, console: Console) -> None:
        for each in self.sweeps.values():
            for seed, problem in each.failed.items():
                console.print(f"FAILED {each.sweep.name}: {problem}", style="red", markup=False, soft_wrap=True)
                console.print(f"  replay: {each.sweep.replay(seed)}", markup=False, highlight=False, soft_wrap=True)
        table = Table("sweep", "seeds", "target", "failed", "metrics: median (max)", "wall s", "CPU s/seed", "MB")
        for each in self.sweeps.values():
            metrics = each.note or ("not run" if not each.finished else format_metrics(each.metrics))
            cpu_s = f"{each.cpu_s / each.finished:.2f}" if each.finished else ""
            counts = f"{each.finished:,}", f"{each.target:,}", f"{len(each.failed)}"
            table.add_row(
                f"{each.sweep.name}: {each.sweep.description}",
                *counts,
                metrics,
                f"{each.wall_s:.0f}",
                cpu_s,
                f"{each.memory_mb:.0f}",
            )
        console.print(table)
        console.print(self.summary(), highlight=False)
        if left_out := sum(not each.finished for each in self.sweeps.values()):
            console.print(f"{left_out} sweeps have not run.", style="red", highlight=False)
        seen = max((each.first + each.started for each in self.sweeps.values()), default=1)
        console.print(f"The next soak covers new seeds with --first {seen}.", highlight=False)


def choose_sweeps(sweeps: Sequence[Sweep], only: str, seeds: str, first: int) -> list[SweepProgress]:
    """Raises `ValueError` with the known names."""
    chosen = [each for each in sweeps if not only or fnmatchcase(each.name, only)]
    if not chosen:
        raise ValueError(f"no sweep {only!r}; use {', '.join(each.name for each in sweeps)}")
    if not seeds:
        return [SweepProgress(each, first, each.target) for each in chosen]
    if not only:
        raise ValueError("--seeds needs --only")
    if first != 1:
        raise ValueError("--seeds says which seeds run: leave out --first")
    given = parse_seeds(seeds)
    if given[0] < 1:
        raise ValueError("seeds begin with 1")
    return [SweepProgress(each, given[0], len(given)) for each in chosen]


def main(
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help=f"Time for all sweeps. Default: {MINUTES:g}; with --only as long as it takes."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    first: Annotated[int, typer.Option(min=1, help="The first seed of each sweep.")] = 1,
    only: Annotated[str, typer.Option(help="Only this sweep, or those that match, such as `kill*`.")] = "",
    seeds: Annotated[str, typer.Option(help="With --only: this seed or range, such as 17 or 1..200.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one object per sweep.")] = False,
) -> None:
    """Sweep over many seeds, print what failed with the command that replays it. Exit status: 1 if a seed failed, or
    none has run."""
    try:
        chosen = choose_sweeps(SWEEPS, only, seeds, first)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with SeedPool(jobs) as pool:
        sys.exit(run(chosen, MINUTES if minutes is None and not only else minutes, pool, as_json=as_json))


def run(sweeps: Iterable[SweepProgress], minutes: float | None, pool: SeedPool, *, as_json: bool = False) -> int:
    """Return the exit status. Results so far are also printed after Ctrl-C."""
    soak = Soak(sweeps, minutes, pool)
    status = 0
    try:
        soak.run()
    except KeyboardInterrupt:
        status = INTERRUPTED
    if as_json:
        for each in soak.sweeps.values():
            print(json.dumps(each.as_dict()))
    else:
        soak.print_results(Console(width=160))
    has_run = any(each.finished for each in soak.sweeps.values())
    return 1 if soak.has_failed or not (has_run or status) else status


if __name__ == "__main__":
    typer.run(main)
