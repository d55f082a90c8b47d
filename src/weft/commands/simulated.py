"""`weft sim`, with a tape if one is wanted: the simulator itself knows no recorder."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.commands.ending import told
from weft.commands.record import open_tape
from weft.sim import command

if TYPE_CHECKING:
    from weft.record import Tape


def sim(scenario: str, directory: Path | None, **options: Any) -> int:
    """The whole command; returns the exit code."""
    if directory is None:
        return command.sim(scenario, **options)
    tapes: list[Tape] = []

    def make_tape(clock: Callable[[], float]) -> "Tape":
        tapes.append(open_tape(directory, wait_when_full=True, wall_clock=clock))
        return tapes[-1]

    def play() -> int:
        try:
            return command.sim(scenario, make_tape=make_tape, **options)
        finally:
            for tape in tapes:
                tape.close()

    return told("sim", play)
