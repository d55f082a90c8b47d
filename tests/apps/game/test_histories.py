"""Random histories, and broken participants, which the checks must find."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from broadloom.apps.game import Diverged
from broadloom.apps.game.entry import Entry
from broadloom.apps.game.participant import Participant
from broadloom.apps.game.stand_ins import StandIns
from broadloom.apps.game.timeline import Timeline
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from tests.apps.game.histories import NAMES, History, run_seed
from tests.apps.game.sim_runtime import FreeRelay, Relay, SimGame
from tests.histories import problem_of

BATCHES = [range(first, first + 5) for first in range(1, 201, 5)]
"""`make soak` runs thousands."""
MUTANT_SEEDS = range(1, 30)


@pytest.mark.parametrize("seeds", BATCHES, ids=str)
def test_members_have_the_same_state_after_rest(seeds: range) -> None:
    for seed in seeds:
        history = run_seed(seed)
        assert history.counts["Acted"] > 50, "the game goes on"


def test_same_seed_gives_the_same_history() -> None:
    histories = [History(4), History(4)]
    for history in histories:
        history.run(2)
    assert histories[0].sim.events == histories[1].sim.events


@pytest.mark.parametrize("is_free", [False, True], ids=["agreed", "free"])
def test_both_sides_of_a_partition_play_on_and_agree_when_they_meet(is_free: bool) -> None:
    history = History(2, is_free=is_free)
    history.run_for(4.0)
    history.sim.partition([history.alive[0].node])
    before = [each.participant.table.state["count"] for each in history.alive]
    history.run_for(15.0)
    after = [each.participant.table.state["count"] for each in history.alive]
    assert all(two > one for one, two in zip(before, after, strict=True)), "both sides play on"
    history.sim.heal()
    history.run_for(5.0)
    history.check()
    assert bool(history.counts["Rewound"]) is not is_free


@pytest.mark.parametrize("is_free", [False, True], ids=["agreed", "free"])
@pytest.mark.parametrize("seed", range(1, 6))
def test_player_whose_role_another_one_has_after_a_partition_takes_an_open_one(seed: int, is_free: bool) -> None:
    sim = Simulation(seed, SimulationSettings(roster=True))
    nodes = [sim.add_peer() for _ in range(4)]
    assert sim.run_until(lambda: all(each.is_connected for each in nodes), 60.0)
    sim.partition(nodes[:2])
    sim.run_for(10.0)
    relay = FreeRelay() if is_free else Relay()
    role, *_ = relay.seats()
    anna, ben = (SimGame(node, relay, name, role) for node, name in zip(nodes[1:3], NAMES, strict=False))
    assert sim.run_until(lambda: anna.participant.role == ben.participant.role == role, 10.0)
    sim.heal()
    sim.run_for(20.0)
    assert anna.participant.table == ben.participant.table
    roles = {anna.participant.role, ben.participant.role}
    assert roles > {role}
    assert None not in roles


@pytest.mark.parametrize("is_free", [False, True], ids=["agreed", "free"])
def test_programs_that_start_different_games_at_the_same_moment_go_on_with_one(is_free: bool) -> None:
    for seed in range(1, 21):
        check_different_games(seed, FreeRelay if is_free else Relay)


def check_different_games(seed: int, relay: type[Relay]) -> None:
    """Two games of two programs each. The program with the smallest id decides which one is played."""
    sim = Simulation(seed, SimulationSettings(roster=True))
    nodes = [sim.add_peer() for _ in range(4)]
    assert sim.run_until(lambda: all(each.is_connected for each in nodes), 60.0)
    programs = []
    for number, node in enumerate(nodes):
        game = relay()
        game.roles = {"runner": 2 + number % 2}
        programs.append(SimGame(node, game, NAMES[number], ""))
        sim.run_for(sim.random.choice((0.0, 0.01, 0.2)))
    sim.run_for(10.0)
    first = min(programs, key=lambda each: each.peer_id).participant.identity
    for program in programs:
        assert program.other_game == (first if program.participant.identity != first else ""), f"seed {seed}"
    game = relay()
    game.roles = {"runner": 5}
    late = SimGame(sim.add_peer(), game, NAMES[4], "")
    assert sim.run_until(lambda: bool(late.other_game), 10.0)
    assert late.other_game == first


@pytest.mark.parametrize("relay", [Relay, FreeRelay], ids=["agreed", "free"])
def test_wrong_one_of_two_games_that_many_programs_start_ends_soon(relay: type[Relay]) -> None:
    sim = Simulation(3, SimulationSettings(roster=True))
    nodes = [sim.add_peer() for _ in range(24)]
    assert sim.run_until(lambda: all(len(each.peer.roster.peer_ids()) == len(nodes) for each in nodes), 90.0)
    programs = []
    for number, node in enumerate(nodes):
        game = relay()
        game.roles = {"runner": 2 + number % 2}
        programs.append(SimGame(node, game, "", ""))
    first = min(programs, key=lambda each: each.peer_id).participant.identity
    wrong = [each for each in programs if each.participant.identity != first]
    assert sim.run_until(lambda: all(each.other_game == first for each in wrong), 3.0)


@pytest.mark.parametrize("is_free", [False, True], ids=["agreed", "free"])
def test_member_with_another_state_reports_it_and_continues_with_that_of_the_others(is_free: bool) -> None:
    history = History(7, is_free=is_free)
    history.run_for(4.0)
    lead = history.alive[0].participant._lead()
    broken = next(each for each in history.alive if each.peer_id != lead)
    table = broken.participant.table
    broken.participant.timeline._tables[-1] = replace(table, state={**table.state, "count": -1000})
    history.run_for(6.0)
    assert [each for each in broken.changes if isinstance(each, Diverged)]
    history.sim.run_until(lambda: not history.problem(), 10.0)
    assert history.problem() == ""
    assert not [
        change
        for each in history.alive
        if each is not broken
        for change in each.changes
        if isinstance(change, Diverged)
    ]


# -- mutants


def applies_late_entries_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    insert = Timeline.insert

    def mutant(self: Timeline, entry: Entry) -> bool:
        entry_at_the_end = entry if entry.key > self.tip_key else Entry(
            entry.author, entry.number, entry.kind, entry.role, entry.name, entry.values, self.tip_key.time + 1
        )  # fmt: skip
        return insert(self, entry_at_the_end)

    monkeypatch.setattr(Timeline, "insert", mutant)


def does_not_compare_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Participant, "_on_digest", lambda *_args: None)
    monkeypatch.setattr(Participant, "_on_window", lambda *_args: None)


def never_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandIns, "replace_absent", lambda *_args: None)


@pytest.mark.parametrize(
    "mutate",
    [
        applies_late_entries_at_the_end,
        does_not_compare_states,
        never_stands_in,
    ],
)
@pytest.mark.long
def test_broken_participant_is_found(mutate: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    assert any(problem_of(run_seed, seed) for seed in MUTANT_SEEDS)
