"""Two games that began on two sides of a partition: each goes on when they meet, with its own members."""

from dataclasses import replace

import pytest

from broadloom.apps.game import Diverged, Phase
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from tests.apps.game.sim_runtime import FreeRelay, Relay, SimGame

SEEDS = range(1, 9)
MEETING_S = 60.0
WAIT_S = 10.0


class OtherRelay(Relay):
    """With the same roles."""

    name = "other"


class OtherFreeRelay(FreeRelay):
    name = "other"


def games_that_meet(seed: int, *kinds: type[Relay]) -> tuple[Simulation, list[list[SimGame]]]:
    """Of each game two players and one that watches, after the partition."""
    sim = Simulation(seed, SimulationSettings(roster=True))
    nodes = [sim.add_peer() for _ in range(6)]
    assert sim.run_until(lambda: all(each.is_connected for each in nodes), 60.0)
    sim.partition(nodes[:3])
    sim.run_for(10.0)
    games = []
    for kind, side in zip(kinds, (nodes[:3], nodes[3:]), strict=True):
        game = kind()
        game.roles = {"runner": 2}
        anna, ben, spectator = side
        games.append(
            [SimGame(anna, game, "Anna", "*"), SimGame(ben, game, "Ben", "*"), SimGame(spectator, game, "", "")]
        )
    programs = [each for side in games for each in side]
    assert sim.run_until(lambda: all(each.participant.table.phase is Phase.RUNNING for each in programs), 20.0)
    sim.heal()
    assert sim.run_until(lambda: all(len(each.members() or []) == 6 for each in programs), MEETING_S)
    assert not any(each.other_game for each in programs)
    return sim, games


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kinds", [(Relay, OtherRelay), (FreeRelay, OtherFreeRelay)], ids=["agreed", "free"])
def test_player_is_replaced_by_a_member_of_its_own_game(seed: int, kinds: tuple[type[Relay], ...]) -> None:
    sim, games = games_that_meet(seed, *kinds)
    for programs in games:
        check_stand_in(sim, *programs)


def check_stand_in(sim: Simulation, player: SimGame, *others: SimGame) -> None:
    role, mine = player.participant.role, {each.peer_id for each in others}
    assert role is not None
    player.node.kill()
    is_replaced = sim.run_until(lambda: {each.participant.table.seats[role].actor for each in others} <= mine, WAIT_S)
    assert is_replaced, f"nobody acts for {role} of {others[0].participant.identity}"


@pytest.mark.parametrize("seed", SEEDS)
def test_states_of_a_game_are_compared_by_its_own_members(seed: int) -> None:
    sim, games = games_that_meet(seed, FreeRelay, OtherFreeRelay)
    for programs in games:
        check_comparison(sim, programs)


def check_comparison(sim: Simulation, programs: list[SimGame]) -> None:
    lead = min(each.peer_id for each in programs)
    broken = next(each for each in programs if each.peer_id != lead)
    table = broken.participant.table
    broken.participant.timeline._tables[-1] = replace(table, state={**table.state, "count": -1000})
    is_found = sim.run_until(lambda: any(isinstance(each, Diverged) for each in broken.changes), WAIT_S)
    assert is_found, f"nobody compares the states of {broken.participant.identity}"
    assert {each.participant._lead() for each in programs} == {lead}
    assert len({each.participant.table.hash() for each in programs}) == 1
