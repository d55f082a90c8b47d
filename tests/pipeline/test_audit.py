"""The audit is right in both directions: what is planted is found, and nothing else; with the pure functions alone."""

from pathlib import Path

import pytest

from tests.pipeline.simulated import simulated
from tests.pipeline.without_spark import frame, judged
from weft.pipeline.made.faults import Fault, NoPlace, Planted, plant, write
from weft.pipeline.made.tape import Plan, make
from weft.record import read

PLAN = Plan(rows=40_000, peers=30, arrivals=5, leaves=4, deaths=4, machines=3, seconds=120)
IN_FABRIC = [fault for fault in Fault if fault is not Fault.BEFORE_PARENT]
"""What can be planted where nobody responds to anything."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make(folder, PLAN)
    return folder


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Peers that are killed under traffic, as the simulator records them."""
    folder = tmp_path_factory.mktemp("simulated")
    rows = simulated("kill", 30).rows
    channel = rows["channel"][0].as_py()
    write(frame(rows), folder, {channel: channel.ljust(64, "0")})
    return folder


def named(planted: list[Planted]) -> set[tuple[str, str, int, str]]:
    return {(each.finding, each.author, each.sequence, each.receiver) for each in planted}


def test_a_simulation_with_kills_is_clean(simulation: Path) -> None:
    found = judged(read(simulation))
    assert found.findings == set()
    assert found.accounts["owed"].sum() == found.deliveries.height
    assert set(found.members["ending"]) == {"present", "gone"}


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.value)
@pytest.mark.parametrize("seed", [1, 2])
def test_each_fault_alone_in_a_made_tape(made: Path, tmp_path: Path, fault: Fault, seed: int) -> None:
    planted = plant(made, tmp_path, [fault], seed)
    found = judged(read(tmp_path))
    assert found.findings == named(planted)
    assert len(found.guilty) == (0 if fault is Fault.MISSED else 1)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_faults_together_in_a_made_tape(made: Path, tmp_path: Path, seed: int) -> None:
    planted = plant(made, tmp_path, [*Fault, *Fault, *Fault], seed)
    assert judged(read(tmp_path)).findings == named(planted)


@pytest.mark.parametrize("seed", [1, 2])
def test_all_faults_together_in_a_simulated_tape(simulation: Path, tmp_path: Path, seed: int) -> None:
    planted = plant(simulation, tmp_path, IN_FABRIC, seed)
    assert judged(read(tmp_path)).findings == named(planted)


def test_a_fault_without_a_place_is_refused(simulation: Path, tmp_path: Path) -> None:
    with pytest.raises(NoPlace, match="before_parent"):
        plant(simulation, tmp_path, [Fault.BEFORE_PARENT])


@pytest.mark.parametrize("scenario", ["kill-most", "long-split", "trouble", "churn"])
def test_simulated_histories_are_clean(scenario: str) -> None:
    found = judged(simulated(scenario, 20).rows)
    assert found.guilty == set()
    if scenario == "long-split":
        assert {each[0] for each in found.findings} == {"missed_reported"}
