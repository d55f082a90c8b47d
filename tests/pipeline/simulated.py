"""Tapes of simulated histories: real peers, known faults, one clock."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from broadloom.record import Tape, TapeSettings, read
from broadloom.record.arrow_import import pa
from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.scenario import load
from broadloom.testing.sim.simulation import Simulation
from broadloom.testing.sim.steps import Run

CHURN = """
description = "Peers join, leave and crash for a minute."
peers = 30

[[step]]
do = "grow"

[[step]]
do = "traffic"
per_s = 5

[[step]]
do = "churn"
fraction_per_min = 0.7
minutes = 1

[[step]]
do = "converge"
timeout_s = 60
"""


class History(NamedTuple):
    rows: pa.Table
    """Events of all peers."""
    links: set[frozenset[str]]
    """Links that both ends have at the end."""
    figures: dict[str, float]


@cache
def simulated_history(
    scenario: str, peers: int, mode: DisseminationMode = DisseminationMode.FLOOD, seed: int = 1
) -> History:
    """Run once for all tests. Fails if a guarantee is violated."""
    with TemporaryDirectory() as folder:
        if scenario == "churn":
            path = Path(folder) / "churn.toml"
            path.write_text(CHURN)
            scenario = str(path)
        tapes: list[Tape] = []

        def make_tape(clock: Callable[[], float]) -> Tape:
            tapes.append(Tape(Path(folder), settings=TapeSettings(block_when_full=True), wall_clock=clock))
            return tapes[-1]

        loaded = load(scenario).with_dissemination(mode)
        simulation = Simulation(seed, loaded.settings, tape_factory=make_tape)
        run = Run(simulation, peers)
        try:
            loaded.run_steps(run)
        finally:
            for tape in tapes:
                tape.close()
        known = {peer: set(others) for peer, others in simulation.adjacency().items()}
        links = {frozenset((f"{x:016x}", f"{y:016x}")) for x in known for y in known[x] if x in known.get(y, set())}
        return History(read(folder), links, run.metrics)
