"""A hostile member of a signed channel harms nobody but itself: every guarantee holds among the honest."""

import pytest

from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.hostile import HostileNode
from broadloom.testing.sim.scenario import load
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from broadloom.testing.sim.step_checker import GuaranteeViolation

CASES = [("kill", 1), ("partition", 1), ("random-faults", 4), ("long-partition", 1), ("pause", 1)]


@pytest.mark.parametrize("mode", list(DisseminationMode))
@pytest.mark.parametrize(("scenario", "seed"), CASES)
def test_guarantees_hold_with_a_hostile_member(scenario: str, seed: int, mode: DisseminationMode) -> None:
    load(scenario).with_dissemination(mode).with_hostile(1).run(seed, 12)


@pytest.mark.parametrize(
    ("mode", "seed", "peers"),
    [
        (DisseminationMode.MIXED, 7080, 22),
        pytest.param(DisseminationMode.TREE, 7075, 30, marks=pytest.mark.long),
        pytest.param(DisseminationMode.TREE, 7076, 30, marks=pytest.mark.long),
    ],
)
def test_false_starting_position_hides_no_message(mode: DisseminationMode, seed: int, peers: int) -> None:
    """Where the first messages of an author could not be fetched, a newcomer went on after the false position."""
    load("long-partition").with_dissemination(mode).with_hostile(1).run(seed, peers)


@pytest.mark.parametrize(("hostile", "seed"), [(1, 1), (1, 6), (1, 7), (2, 3), (2, 5)])
def test_messages_lost_in_a_long_partition_are_reported_to_everyone(hostile: int, seed: int) -> None:
    """Claims that were proven only later were never passed on, the gap after a false position was not watched, and
    messages were given up before any neighbor was asked for them."""
    load("long-partition").with_hostile(hostile).run(seed, 24)


@pytest.mark.long
@pytest.mark.parametrize("scenario", ["kill", "partition", "random-faults"])
def test_guarantees_hold_with_two_hostile_members(scenario: str) -> None:
    load(scenario).with_hostile(2).run(20, 24)


def test_hostile_member_does_harm_where_messages_are_not_signed() -> None:
    """Otherwise the tests above would show nothing."""
    simulation = Simulation(1, SimulationSettings(hostile_count=1))
    assert isinstance([simulation.add_peer() for _ in range(8)][1], HostileNode)
    simulation.run_for(5)
    simulation.set_traffic(10)
    with pytest.raises(GuaranteeViolation, match=r"which was never sent|which is available"):
        simulation.run_for(30)
