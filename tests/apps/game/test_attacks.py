"""Modified programs in games in free order: whose actions they can send, and at what time."""

from typing import Any

import pytest

from broadloom.apps.game.entry import NUMBER_MAX, Entry, Kind, to_json
from broadloom.apps.game.timeline import Timeline
from tests.apps.game.histories import History
from tests.apps.game.sim_runtime import FreeRelay, SimGame


@pytest.fixture
def history() -> History:
    """Anna, Ben and Carla play, Dora and Emil watch."""
    history = History(2, is_free=True)
    history.run_for(3.0)
    return history


def program(history: History, name: str) -> SimGame:
    return next(each for each in history.alive if each.participant.name == name)


def next_entry(victim: SimGame, of: SimGame, **changed: Any) -> Entry:
    """What `victim` would accept as the next entry of another program."""
    number = victim.participant.timeline.counts().get(of.peer_id, 0) + 1
    given = {"time": victim.participant.timeline.tip_key.time + 1, **changed}
    return Entry(of.peer_id, number, Kind.ACT, of.participant.role or "", "run", {"x": "forged"}, **given)


def send_window(victim: SimGame, sender: SimGame, *entries: Entry) -> None:
    window = [[each.author, *each.fields()] for each in entries]
    victim.participant.on_message(sender.peer_id, to_json({"window": window}))


def has(victim: SimGame, entry: Entry) -> bool:
    return entry in victim.participant.timeline.entries


def test_member_cannot_send_actions_of_a_present_player(history: History) -> None:
    anna, ben, dora = (program(history, name) for name in ("Anna", "Ben", "Dora"))
    forged, own = next_entry(anna, ben), next_entry(anna, dora)
    send_window(anna, dora, forged, own)
    assert not has(anna, forged)
    assert has(anna, own)
    history.run_for(3.0)
    history.check()


def test_actions_of_an_absent_player_are_taken_from_any_member(history: History) -> None:
    anna, ben, dora = (program(history, name) for name in ("Anna", "Ben", "Dora"))
    ben.node.kill()
    assert history.sim.run_until(lambda: ben.peer_id not in (anna.members() or [ben.peer_id]), 20.0)
    last = next_entry(anna, ben)
    send_window(anna, dora, last)
    assert has(anna, last)


@pytest.mark.parametrize("is_window", [False, True], ids=["broadcast", "window"])
def test_time_in_the_far_future_does_not_end_the_game(history: History, is_window: bool) -> None:
    anna, ben, dora = (program(history, name) for name in ("Anna", "Ben", "Dora"))
    entry = next_entry(anna, dora, time=NUMBER_MAX)
    if is_window:
        send_window(anna, dora, entry)
    else:
        anna.participant.on_message(dora.peer_id, to_json({"entry": entry.fields()}))
    assert not has(anna, entry)
    sent = anna.participant.new_entry(Kind.ACT, "runner 1", "run")
    anna.participant.submit(sent)
    history.sim.run_for(2.0)
    assert has(ben, sent) or anna.settled[sent.number]


def test_snapshot_in_the_far_future_is_refused(history: History) -> None:
    anna, dora = program(history, "Anna"), program(history, "Dora")
    timeline = Timeline(FreeRelay(), "")
    timeline.insert(next_entry(anna, dora, time=NUMBER_MAX))
    with pytest.raises(ValueError, match="time"):
        Timeline(FreeRelay(), "").restore(timeline.snapshot())


@pytest.mark.parametrize("is_window", [False, True], ids=["broadcast", "window"])
def test_author_cannot_act_before_its_own_last_action(history: History, is_window: bool) -> None:
    anna, ben = program(history, "Anna"), program(history, "Ben")
    last = max(each.time for each in anna.participant.timeline.entries if each.author == ben.peer_id)
    entry = next_entry(anna, ben, time=last)
    if is_window:
        send_window(anna, ben, entry)
    else:
        anna.participant.on_message(ben.peer_id, to_json({"entry": entry.fields()}))
    assert not has(anna, entry)
    later = next_entry(anna, ben, time=last + 1)
    anna.participant.on_message(ben.peer_id, to_json({"entry": later.fields()}))
    assert has(anna, later)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("run", {"text": "x" * 20_000}),
        ("run", {"x": object()}),
        ("run", {"x": float("nan")}),
        ("run", {"x": "\ud800"}),
        ("run", {"x": {"deep": "\ud800"}}),
        ("\ud800", {}),
        ("x" * 300, {}),
    ],
    ids=["large", "not JSON", "nan", "surrogate", "nested surrogate", "surrogate name", "long name"],
)
def test_action_that_cannot_be_sent_does_not_cut_its_player_off(
    history: History, name: str, values: dict[str, Any]
) -> None:
    anna, ben = program(history, "Anna"), program(history, "Ben")
    with pytest.raises(ValueError, match=r"an action|an entry"):
        anna.participant.new_entry(Kind.ACT, "runner 1", name, values)
    sent = anna.participant.new_entry(Kind.LEAVE, "runner 1", "", {"player": anna.peer_id})
    anna.participant.submit(sent)
    history.sim.run_for(2.0)
    assert has(ben, sent)


def test_player_applies_the_values_that_the_others_get(history: History) -> None:
    anna = program(history, "Anna")
    entry = anna.participant.new_entry(Kind.ACT, "runner 1", "run", {"x": (1, {2: 3})})
    assert entry.values == {"x": [1, {"2": 3}]}
