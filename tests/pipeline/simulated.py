"""Tapes of simulated histories: real peers, known faults, one clock."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from weft.record import Tape, TapeSettings, read
from weft.record.arrow import pa
from weft.sim.scenario import load
from weft.sim.simulation import Simulation
from weft.sim.spread import Spread
from weft.sim.steps import Run

CHURN = """
about = "Peers come, leave and die for a minute."
peers = 30

[[step]]
do = "grow"

[[step]]
do = "traffic"
per_s = 5

[[step]]
do = "churn"
share_per_min = 0.7
minutes = 1

[[step]]
do = "settle"
within_s = 60
"""


class History(NamedTuple):
    rows: pa.Table
    """What everyone saw."""
    links: set[frozenset[str]]
    """What both ends had at the end."""
    figures: dict[str, float]


@cache
def simulated(scenario: str, peers: int, spread: Spread = Spread.FLOOD, seed: int = 1) -> History:
    """Play it once for all tests. The promises held, or this fails."""
    with TemporaryDirectory() as folder:
        if scenario == "churn":
            path = Path(folder) / "churn.toml"
            path.write_text(CHURN)
            scenario = str(path)
        tapes: list[Tape] = []

        def make_tape(clock: Callable[[], float]) -> Tape:
            tapes.append(Tape(Path(folder), settings=TapeSettings(wait_when_full=True), wall_clock=clock))
            return tapes[-1]

        story = load(scenario).with_spread(spread)
        simulation = Simulation(seed, story.settings, make_tape=make_tape)
        run = Run(simulation, peers)
        try:
            story.play(run)
        finally:
            for tape in tapes:
                tape.close()
        known = {peer: set(others) for peer, others in simulation.adjacency().items()}
        links = {frozenset((f"{x:016x}", f"{y:016x}")) for x in known for y in known[x] if x in known.get(y, set())}
        return History(read(folder), links, run.figures)
