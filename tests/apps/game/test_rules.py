"""The rules of the games, the table, and the timeline: without IO."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.apps import game
from broadloom.apps.game import Action, Chance, IllegalActionError, Phase
from broadloom.apps.game.changes import changes_between
from broadloom.apps.game.entry import Entry, Key, Kind, decode_entry
from broadloom.apps.game.games.chain import Chain
from broadloom.apps.game.games.gems import POINTS, Gems
from broadloom.apps.game.table import Table
from broadloom.apps.game.timeline import TABLES_KEPT, Timeline
from tests.apps.game.sim_runtime import FreeRelay

ANN, BOB = 11, 22
CHANCE = Chance("test")


def entries(*given: tuple[Any, ...]) -> list[Entry]:
    """Author, kind, role, name, values; the time counts up."""
    numbers: dict[int, int] = {}
    found = []
    for time, (author, *rest) in enumerate(given, 1):
        numbers[author] = numbers.get(author, 0) + 1
        found.append(replace(Entry(author, numbers[author], *rest), time=time))
    return found


def place(state: game.State, by: str, x: int, y: int) -> game.State:
    return Chain(2).apply({**state, "turn": by}, Action("place", {"x": x, "y": y}), by, CHANCE)


@pytest.mark.parametrize("made", [Chain(3), Gems(4)], ids=lambda made: made.name)
def test_game_is_pure_and_its_stand_ins_act_legally(made: game.Game) -> None:
    game.check(made, actions=60, seeds=[1, 2])


def test_full_cell_bursts_and_takes_its_neighbors() -> None:
    state = Chain(2).begin(["red", "blue"], CHANCE)
    state = place(place(place(state, "red", 7, 5), "blue", 1, 0), "red", 0, 0)
    state = place(place(state, "blue", 4, 4), "red", 0, 0)
    assert state["cells"][0][:2] == [["", 0], ["red", 2]]
    assert state["cells"][1][0] == ["red", 1]
    assert state["bursts"] == 1


def test_last_color_on_the_board_wins() -> None:
    state = Chain(2).begin(["red", "blue"], CHANCE)
    state = place(place(place(state, "red", 0, 0), "blue", 1, 0), "red", 0, 0)
    result = Chain(2).over(state)
    assert result is not None
    assert result.winner == "red"


def test_gem_is_a_point_and_a_snowball_takes_one() -> None:
    made = Gems(2)
    state = {**made.begin(["red", "blue"], CHANCE), "gems": [[1, 0]], "at": {"red": [0, 0], "blue": [5, 0]}}
    state = made.apply(state, Action("moved", {"x": 1, "y": 0}), "red", CHANCE)
    assert (state["score"], state["snowballs"]["red"], len(state["gems"])) == ({"red": 1, "blue": 0}, 2, 1)
    state = made.apply(state, Action("shot", {"dx": -1, "dy": 0}), "blue", CHANCE)
    assert state["score"] == {"red": 0, "blue": 1}
    assert state["at"]["red"] == [0, 0]
    with pytest.raises(IllegalActionError, match="no snowball left"):
        made.apply(state, Action("shot", {"dx": -1, "dy": 0}), "blue", CHANCE)
    assert made.over({**state, "score": {"red": POINTS, "blue": 0}}) == ("red", f"red has {POINTS} points")


@pytest.mark.parametrize("values", [{}, {"x": "a", "y": 0}, {"x": True, "y": 0}, {"x": 99, "y": 0}, {"x": [], "y": {}}])
@pytest.mark.parametrize("made", [Chain(2), Gems(2)], ids=lambda made: made.name)
def test_malformed_action_is_illegal(made: game.Game, values: dict[str, Any]) -> None:
    state = made.begin(made.seats(), CHANCE)
    with pytest.raises(IllegalActionError):
        made.apply(state, Action("place" if made.name == "chain" else "moved", values), "red", CHANCE)


def test_game_that_changes_its_state_or_is_not_pure_is_found() -> None:
    class Careless(FreeRelay):
        def apply(self, state: game.State, action: Action, by: str, chance: Chance) -> game.State:
            state["count"] += 1
            return {**state, "last": by}

    class Impure(FreeRelay):
        def apply(self, state: game.State, action: Action, by: str, chance: Chance) -> game.State:
            return {**state, "last": by, "hash": str(id(state))}

    for made, text in ((Careless(), "changes the state"), (Impure(), "two results")):
        with pytest.raises(game.GameCheckError, match=text):
            game.check(made)


def test_state_that_is_not_json_is_found_before_the_first_action_and_after_the_last() -> None:
    class BeginsWithATuple(FreeRelay):
        def begin(self, players: Sequence[str], chance: Chance) -> game.State:
            return {**super().begin(players, chance), "players": tuple(players)}

    class EndsWithASet(FreeRelay):
        def apply(self, state: game.State, action: Action, by: str, chance: Chance) -> game.State:
            return {**super().apply(state, action, by, chance), "last": {by}}

        def over(self, state: game.State) -> game.Result | None:
            return game.Result(None, "over") if state["count"] else None

    for made, text in ((BeginsWithATuple(), "JSON does not keep"), (EndsWithASet(), "is not JSON")):
        with pytest.raises(game.GameCheckError, match=text):
            game.check(made)


def test_check_of_a_game_whose_stand_ins_never_act_says_that_it_tested_nothing() -> None:
    class Idle(FreeRelay):
        def stand_in(self, state: game.State, role: str, chance: Chance) -> Action | None:
            return None

    with pytest.raises(game.GameCheckError, match="apply was not tested"):
        game.check(Idle())


def test_role_has_one_actor_and_is_handed_back() -> None:
    table = Table.new(Chain(2))
    history = entries(
        (ANN, Kind.SIT, "red", "Ann"),
        (BOB, Kind.SIT, "blue", "Bob"),
        (ANN, Kind.STAND_IN, "blue", "", {"instead_of": BOB}),
    )
    changes = []
    for entry in history:
        after = table.apply(Chain(2), entry, "")
        changes += list(changes_between(table, after))
        table = after
    assert changes == [
        game.Arrived("red", "Ann"), game.Arrived("blue", "Bob"), game.Started(1), game.StoodIn("blue", ANN),
    ]  # fmt: skip
    with pytest.raises(IllegalActionError, match="another member acts for blue"):
        table.apply(Chain(2), Entry(33, 1, Kind.STAND_IN, "blue", "", {"instead_of": BOB}), "")
    with pytest.raises(IllegalActionError, match="you do not act for blue"):
        table.apply(Chain(2), Entry(BOB, 2, Kind.ACT, "blue", "place", {"x": 0, "y": 0}), "")
    with pytest.raises(IllegalActionError, match="blue is taken by Bob"):
        table.apply(Chain(2), Entry(33, 1, Kind.SIT, "blue", "Carl"), "")
    back = table.apply(Chain(2), Entry(44, 1, Kind.SIT, "blue", "Bob"), "")
    assert list(changes_between(table, back)) == [game.Back("blue", "Bob")]


def test_game_is_over_when_all_players_have_left_and_can_be_started_again() -> None:
    timeline = Timeline(Chain(2), "")
    for entry in entries(
        (ANN, Kind.SIT, "red", "Ann"),
        (ANN, Kind.START),
        (ANN, Kind.LEAVE, "red", "", {"player": ANN}),
    ):
        timeline.insert(entry)
    assert timeline.tip.phase is Phase.OVER
    for entry in (Entry(BOB, 1, Kind.SIT, "blue", "Bob", time=8), Entry(BOB, 2, Kind.START, time=9)):
        timeline.insert(entry)
    assert (timeline.tip.phase, timeline.tip.round) == (Phase.RUNNING, 2)


@pytest.mark.parametrize("seed", range(5))
def test_order_of_arrival_does_not_change_the_state(seed: int) -> None:
    random = Random(seed)
    roles = FreeRelay().seats()
    history = entries(
        *((author, Kind.SIT, role, role) for author, role in enumerate(roles, 1)),
        *((author, Kind.ACT, roles[author - 1], "run") for author in (random.choice([1, 2, 3]) for _ in range(40))),
    )
    hashes = set()
    for _ in range(5):
        timeline = Timeline(FreeRelay(), "")
        for entry in random.sample(history, len(history)):
            timeline.insert(entry)
            if random.random() < 0.5:
                timeline.tip.hash()
        hashes.add(timeline.tip.hash())
        copy = Timeline(FreeRelay(), "")
        copy.restore(timeline.snapshot())
        hashes.add(copy.tip.hash())
    assert len(hashes) == 1


@pytest.mark.parametrize("seed", range(6))
def test_older_tables_and_counts_are_as_if_all_were_kept(seed: int) -> None:
    random = Random(seed)
    roles = FreeRelay().seats()
    history = entries(
        *((author, Kind.SIT, role, role) for author, role in enumerate(roles, 1)),
        *((author, Kind.ACT, roles[author - 1], "run") for author in (random.choice([1, 2, 3]) for _ in range(500))),
    )
    waiting = {author: [each for each in history if each.author == author] for author in (1, 2, 3)}
    timeline, whole = Timeline(FreeRelay(), ""), Timeline(FreeRelay(), "")
    timeline.kept_count = 100 if seed % 2 else 1000
    while any(waiting.values()):
        queue = random.choice([each for each in waiting.values() if each])
        for entry in queue[: random.choice([1, 1, 1, 30])]:
            timeline.insert_or_skip(queue.pop(0))
            timeline.tip.hash()
            whole.insert(entry)
        if random.random() < 0.1 and seed % 2 == 0:
            revoked = timeline.entries[-1]
            timeline.remove(revoked)
            timeline.insert(revoked)
    if seed % 2 == 0:  # what is forgotten depends on the order of arrival
        assert timeline.tip == whole.tip
    kept = timeline.entries
    table = timeline._base
    for end, entry in enumerate(kept, 1):
        with contextlib.suppress(IllegalActionError):
            table = table.apply(timeline.game, entry, "")
        assert timeline.table_at(Key(*entry.key)) == table
        last_numbers = timeline.base_counts | {each.author: each.number for each in kept[:end]}
        assert timeline.counts(Key(*entry.key)) == {author: number for author, number in last_numbers.items() if number}
    for _ in range(20):
        counts = {author: random.randrange(len(history)) for author in (1, 2, 3)}
        assert timeline.beyond(counts) == [each for each in kept if each.number > counts[each.author]]
    assert sum(each is not None for each in timeline._tables) <= 2 * TABLES_KEPT + len(kept) / TABLES_KEPT + 1


def test_timeline_of_a_game_that_is_not_pure_can_still_be_compared() -> None:
    roles = FreeRelay().seats()
    sat = entries(*((author, Kind.SIT, role, role) for author, role in enumerate(roles, 1)))
    timeline = Timeline(FreeRelay(), "")
    for entry in sat:
        timeline.insert(entry)
    last = roles.index(timeline.tip.state["last"])
    for number in range(3 * TABLES_KEPT):
        if number == TABLES_KEPT // 2:  # the last one can act again, but not in a table that is computed again
            other = roles[(last + 1) % len(roles)]
            timeline._tables[-1] = replace(timeline.tip, state={**timeline.tip.state, "last": other})
        else:
            last = (last + 1) % len(roles)
        timeline.insert(Entry(last + 1, 2 + number, Kind.ACT, roles[last], "run", time=len(sat) + 1 + number))
        assert timeline.problem(timeline.entries[-1]) == ""
    assert all(timeline.table_at(Key(*entry.key)) is not None for entry in timeline.entries)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(Kind), st.text(max_size=20), st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_entry_is_read_as_it_was_written(kind: Kind, name: str, values: dict[str, Any]) -> None:
    entry = Entry(ANN, 7, kind, "red", name, values, time=9)
    assert decode_entry(ANN, entry.encode()) == entry


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"[]", b"{}", b'[1,1,"fly","","",{}]', b'[-1,1,"act","","",{}]', b"[" * 100_000),
        *(b'[1,1,"act","","",{"x":%s}]' % each for each in (b"NaN", b"-Infinity", b"1e999")),
        *(b'[1,1,"act","","",{"x":"%s"}]' % each for each in (b"\\ud800", b"\xed\xa0\x80")),
    ],
)
def test_malformed_entry_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_entry(ANN, data)
