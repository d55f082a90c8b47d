"""`broadloom sim`, with a tape if one is wanted: the simulator itself knows no recorder."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broadloom.cli.record import open_tape
from broadloom.cli.runner import run_reporting_errors
from broadloom.testing.sim import command

if TYPE_CHECKING:
    from broadloom.record import Tape


def sim(scenario: str, directory: Path | None, **options: Any) -> int:
    """The whole command; returns the exit code."""
    if directory is None:
        return command.sim(scenario, **options)
    tapes: list[Tape] = []

    def make_tape(clock: Callable[[], float]) -> "Tape":
        tapes.append(open_tape(directory, block_when_full=True, wall_clock=clock))
        return tapes[-1]

    def play() -> int:
        try:
            return command.sim(scenario, tape_factory=make_tape, **options)
        finally:
            for tape in tapes:
                tape.close()

    return run_reporting_errors("sim", play)
