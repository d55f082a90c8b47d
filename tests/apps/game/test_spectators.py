"""Spectators and the time of actions, in virtual time with links of 1 ms. `measure.py` prints it for any number."""

import pytest

from tests.apps.game.measure import PLAYERS, action_times
from tests.apps.large_fabric import percentile
from tools.game_latency import KINDS

ACTION_S = {"agreed": 0.025, "free": 0.01}
"""What 99 of 100 actions may take from a player to another."""


@pytest.mark.parametrize("spectators", [8, pytest.param(40, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ACTION_S)
def test_actions_of_sixteen_players_are_in_time_although_others_watch(kind: str, spectators: int) -> None:
    assert percentile(action_times(KINDS[kind](PLAYERS), spectators, seconds=0.5), 99) <= ACTION_S[kind]
