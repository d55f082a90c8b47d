"""Random histories, one per seed: what is common to the modules that have them.

A module of histories has a function `run_seed`, which fails if something does not hold that must. `main` makes it a
program: `python -m tests.switch.history 17` replays a seed, `1..200` runs many. `make soak` sweeps over more.
"""

import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import NoReturn, TypeVar

from broadloom.testing.sim.seed_runner import parse_seeds
from broadloom.testing.sim.simulation import Simulation, SimulationSettings, TapeFactory
from broadloom.testing.sim.step_checker import GuaranteeViolation

LOG_LINES = 60
"""Lines of the log that are shown with a problem."""


class HistoryError(AssertionError):
    """Something that must hold does not."""


class SimHistory(ABC):
    """The base of histories in the simulator."""

    def __init__(self, seed: int, *, tape_factory: TapeFactory | None = None) -> None:
        self.seed = seed
        self.sim = Simulation(seed, SimulationSettings(roster=True), tape_factory=tape_factory)
        self.counts = Counter[str]()
        """What happened how often."""
        self.log: list[str] = []

    @abstractmethod
    def run(self) -> None: ...

    def note(self, text: str) -> None:
        self.log.append(f"{self.sim.clock.now:.2f} {text}")

    def fail(self, problem: str) -> NoReturn:
        spec = sys.modules[type(self).__module__].__spec__
        module = spec.name if spec is not None else "?"
        head = f"seed {self.seed}: {problem} (at {self.sim.clock.now:.3f} s; replay: python -m {module} {self.seed})"
        raise HistoryError("\n".join([head, *self.log[-LOG_LINES:]]))


AnyHistory = TypeVar("AnyHistory", bound=SimHistory)


def run_history(history: AnyHistory) -> AnyHistory:
    """Raises `HistoryError`."""
    try:
        history.run()
    except GuaranteeViolation as violation:
        history.fail(str(violation))
    return history


def problem_of(run_seed: Callable[[int], object], seed: int) -> str:
    """What went wrong with this seed; empty if nothing did."""
    try:
        run_seed(seed)
    except HistoryError as problem:
        return str(problem)
    except Exception as problem:  # of a check without a text, or a fault of the code itself
        place = traceback.extract_tb(problem.__traceback__)[-1]
        text = f"seed {seed}: {problem!r} in {place.name}, line {place.lineno} of {place.filename}: {place.line}"
        return "\n".join([text, *getattr(problem, "__notes__", ())])
    return ""


def main(run_seed: Callable[[int], SimHistory | Counter[str]]) -> None:
    """Run the seeds that the command line names. Exit status: 1 if one failed, 2 after a usage error."""
    try:
        (text,) = sys.argv[1:]
        seeds = parse_seeds(text)
    except ValueError:
        print("Usage: SEED or FIRST..LAST, such as 17 or 1..200.", file=sys.stderr)
        sys.exit(2)
    failed, counts = 0, Counter[str]()

    def count(seed: int) -> None:
        found = run_seed(seed)
        counts.update(found.counts if isinstance(found, SimHistory) else found)

    started_at = time.perf_counter()
    for seed in seeds:
        if problem := problem_of(count, seed):
            failed += 1
            print(problem, flush=True)
    took_s = time.perf_counter() - started_at
    print(f"{len(seeds):,} histories, {failed} failed, {took_s:.1f} s: {dict(counts)}")
    sys.exit(1 if failed else 0)
