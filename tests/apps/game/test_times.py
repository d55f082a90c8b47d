"""The times that a game guarantees, in virtual time: stand-ins, returning players, late joiners, a lost sequencer.

Links have 2 to 40 ms.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from broadloom.apps.game import Acted, Action, Back, Chance, Game, Phase, State, StoodIn
from tests.apps.game.histories import History
from tests.apps.game.sim_runtime import FreeRelay, Relay, SimGame

ORDERS = pytest.mark.parametrize("is_free", [False, True], ids=["agreed", "free"])
SEEDS = range(1, 11)
STAND_IN_S = 3.0
BACK_S = 1.0
CONTINUES_S = 1.0
LATE_S = 1.0
STATE_BYTES = 1_000_000
BYTES_PER_S = 12_500_000
"""100 Mbit/s."""


def player_of(history: History, role: str) -> SimGame:
    return next(each for each in history.alive if each.participant.role == role)


@ORDERS
@pytest.mark.parametrize("seed", SEEDS)
def test_one_stand_in_acts_within_three_seconds_and_the_player_has_its_role_within_a_second_after_it_is_back(
    seed: int, is_free: bool
) -> None:
    history = History(seed, is_free=is_free)
    history.run_for(4.0)
    player_of(history, "runner 1").node.kill()
    survivors = history.alive
    before = [len(each.changes) for each in survivors]
    history.run_for(STAND_IN_S)
    actors = {each.participant.table.seats["runner 1"].actor for each in survivors}
    assert len(actors) == 1
    assert actors <= {each.peer_id for each in survivors}
    for program, first in zip(survivors, before, strict=True):
        acted = [each.role for each in program.changes[first:] if isinstance(each, Acted)]
        assert "runner 1" in acted, f"the stand-in did not act at {program.node}"
    history.join("Anna")
    back = history.programs[-1]
    history.run_for(BACK_S)
    assert back.participant.role == "runner 1"
    history.sim.run_for(1.0)
    assert {each.participant.table.seats["runner 1"].actor for each in history.alive} == {back.peer_id}


@ORDERS
@pytest.mark.parametrize("seed", SEEDS)
def test_player_that_is_back_at_once_after_a_crash_has_its_role_when_the_roster_has_lost_its_former_program(
    seed: int, is_free: bool
) -> None:
    history = History(seed, is_free=is_free)
    history.run_for(4.0)
    former = player_of(history, "runner 1")
    former.node.kill()
    history.join("Anna")
    back = history.programs[-1]
    assert history.sim.run_until(
        lambda: back.participant.role == "runner 1" or back.participant.seating.has_namesake, 10.0
    )
    assert not back.participant.seating.has_namesake
    assert former.peer_id not in (back.members() or [])


@ORDERS
@pytest.mark.parametrize("seed", SEEDS)
def test_player_that_was_frozen_keeps_its_role_once_it_is_back(seed: int, is_free: bool) -> None:
    """It acts before the rosters of the others list it again."""
    history = History(seed, is_free=is_free)
    history.run_for(4.0)
    player = player_of(history, "runner 1")
    others = [each for each in history.alive if each is not player]
    player.node.pause()
    history.run_for(13.0)
    before = [len(each.changes) for each in others]
    player.node.resume()
    history.run_for(10.0)
    for program, first in zip(others, before, strict=True):
        changes = [type(each) for each in program.changes[first:] if getattr(each, "role", None) == "runner 1"]
        assert StoodIn not in changes[changes.index(Back) :]


@ORDERS
def test_present_player_keeps_its_role_although_another_program_has_its_name(is_free: bool) -> None:
    history = History(1, is_free=is_free)
    history.run_for(4.0)
    player = player_of(history, "runner 1")
    history.join("Anna")
    other = history.programs[-1]
    assert history.sim.run_until(lambda: other.participant.seating.has_namesake, 10.0)
    assert {each.participant.table.seats["runner 1"].player for each in history.alive} == {player.peer_id}
    assert other.participant.role is None


class OneFails(FreeRelay):
    """The automaton of runner 1 does not work."""

    def __init__(self, values: dict[str, Any] | None) -> None:
        super().__init__()
        self._values = values

    def stand_in(self, state: State, role: str, chance: Chance) -> Action | None:
        if role != "runner 1":
            return super().stand_in(state, role, chance)
        if self._values is None:
            raise KeyError("broken")
        return Action("run", self._values)


@pytest.mark.parametrize("values", [None, {"x": object()}, {"x": "y" * 20_000}], ids=["raises", "no JSON", "large"])
def test_automaton_that_fails_is_logged_once_and_stops_no_other_one(
    values: dict[str, Any] | None, caplog: pytest.LogCaptureFixture
) -> None:
    history = History(2, game=OneFails(values))
    history.run_for(4.0)
    carla = player_of(history, "runner 3")
    for each in history.alive:
        if each is not carla:
            each.node.kill()
    before = len(carla.changes)
    history.run_for(20.0)
    acted = {each.role for each in carla.changes[before:] if isinstance(each, Acted)}
    assert acted == {"runner 2", "runner 3"}
    assert [each.message for each in caplog.records if "stand-in" in each.message] == [
        "Relay: the stand-in for runner 1 failed, and does not act"
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_play_continues_within_a_second_of_the_death_of_the_sequencer(seed: int) -> None:
    history = History(seed, is_free=False)
    history.run_for(4.0)
    sequencer = next(each for each in history.alive if each.peer_id == each.sequencer())
    sequencer.node.kill()
    survivor = next(each for each in history.alive if each.participant.table.phase is Phase.RUNNING)
    before = len(survivor.changes)
    for _ in range(10):
        history.act()
    history.sim.run_for(CONTINUES_S)
    assert any(isinstance(each, Acted) for each in survivor.changes[before:])


class LargeRelay(Relay):
    """Its state cannot be compressed to less than half."""

    def begin(self, players: Sequence[str], chance: Chance) -> State:
        world = "".join(f"{chance.below(1 << 256):064x}" for _ in range(STATE_BYTES // 64))
        return {**super().begin(players, chance), "world": world}

    def apply(self, state: State, action: Action, by: str, chance: Chance) -> State:
        return {**super().apply(state, action, by, chance), "world": state["world"]}


class LargeFreeRelay(LargeRelay):
    order = FreeRelay.order


@pytest.mark.parametrize("kept_count", [4096, 8], ids=["with-history", "without-history"])
@pytest.mark.parametrize("game", [LargeRelay(), LargeFreeRelay()], ids=["agreed", "free"])
def test_late_joiner_has_a_megabyte_of_state_within_a_second_and_then_no_gap(game: Game, kept_count: int) -> None:
    history = History(2, game=game)
    history.leave(history.programs.pop())
    history.kept_count = kept_count
    for program in history.alive:
        program.participant.timeline.kept_count = kept_count
        if program.order is not None:
            program.order.replica.log._entries_max = 2 * kept_count
        program.node.bytes_per_s = BYTES_PER_S
    history.run_for(10.0)
    history.join("Emil")
    late = history.programs[-1]
    history.run_for(LATE_S)
    assert late.participant.is_ready
    assert len(late.participant.table.state["world"]) == STATE_BYTES
    snapshots = [kind for kind, _ in late.inputs].count("snapshot")
    history.run_for(6.0)
    history.check()
    assert [kind for kind, _ in late.inputs].count("snapshot") == snapshots, "it missed nothing later"
