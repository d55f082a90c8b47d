"""Modified programs in games: whose actions they can send in free order, at what time and of what size; malformed
messages."""

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest

from broadloom.apps.game.entry import ENTRY_BYTES_MAX, NUMBER_MAX, Entry, Kind, decode_entry, to_json
from broadloom.apps.game.timeline import Timeline
from broadloom.apps.nesting import NESTING_MAX
from tests.apps.game.histories import History
from tests.apps.game.sim_runtime import FreeRelay, SimGame

GAME = "relay/3"


@pytest.fixture
def history() -> History:
    """Anna, Ben and Carla play, Dora and Emil watch."""
    history = History(2, is_free=True)
    history.run_for(3.0)
    return history


def program(history: History, name: str) -> SimGame:
    return next(each for each in history.alive if each.participant.seating.name == name)


def next_entry(victim: SimGame, of: SimGame, **changed: Any) -> Entry:
    """What `victim` would accept as the next entry of another program."""
    number = victim.participant.timeline.counts().get(of.peer_id, 0) + 1
    given = {"time": victim.participant.timeline.tip_key.time + 1, **changed}
    return Entry(of.peer_id, number, Kind.ACT, of.participant.role or "", "run", {"x": "forged"}, **given)


def send_window(victim: SimGame, sender: SimGame, *entries: Entry) -> None:
    window = [[each.author, *each.fields()] for each in entries]
    victim.participant.on_message(sender.peer_id, to_json({"window": window, "game": GAME}))


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
        anna.participant.on_message(dora.peer_id, to_json({"entry": entry.fields(), "game": GAME}))
    assert not has(anna, entry)
    sent = anna.participant.new_entry(Kind.ACT, "runner 1", "run")
    anna.participant.submit(sent)
    history.sim.run_for(2.0)
    assert has(ben, sent) or anna.settled[sent.number]


def test_messages_of_another_game_are_ignored(history: History) -> None:
    anna, dora = program(history, "Anna"), program(history, "Dora")
    entry = next_entry(anna, dora)
    for other in ({}, {"game": "relay/2"}, {"game": 3}):
        anna.participant.on_message(dora.peer_id, to_json({"entry": entry.fields(), **other}))
    assert not has(anna, entry)
    assert anna.participant.on_request(to_json({"fetch": "relay/2"})) is None
    anna.participant.on_message(dora.peer_id, to_json({"entry": entry.fields(), "game": GAME}))
    assert has(anna, entry)


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
        anna.participant.on_message(ben.peer_id, to_json({"entry": entry.fields(), "game": GAME}))
    assert not has(anna, entry)
    later = next_entry(anna, ben, time=last + 1)
    anna.participant.on_message(ben.peer_id, to_json({"entry": later.fields(), "game": GAME}))
    assert has(anna, later)


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("run", {"text": "x" * 20_000}),
        ("run", {"x": object()}),
        ("run", {"x": float("nan")}),
        ("run", {"x": "\ud800"}),
        ("run", {"x": {"deep": "\ud800"}}),
        ("run", {"x": nested(NESTING_MAX)}),
        ("run", {"x": nested(2000)}),
        ("\ud800", {}),
        ("x" * 300, {}),
    ],
    ids=[
        "large",
        "not JSON",
        "nan",
        "surrogate",
        "nested surrogate",
        "deep",
        "very deep",
        "surrogate name",
        "long name",
    ],
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


@pytest.mark.parametrize("levels", [NESTING_MAX, 400], ids=["just too deep", "much too deep"])
def test_action_that_is_nested_too_deeply_has_no_effect_at_any_member(history: History, levels: int) -> None:
    anna, dora = program(history, "Anna"), program(history, "Dora")
    sent = replace(next_entry(anna, dora), values={"x": nested(levels)})
    anna.participant.on_message(dora.peer_id, to_json({"entry": sent.fields(), "game": GAME}))
    send_window(anna, dora, sent)
    assert not has(anna, sent)
    with pytest.raises(ValueError, match="nested too deeply"):
        decode_entry(dora.peer_id, to_json(sent.fields()))  # as in agreed order
    deepest = replace(sent, values={"x": nested(NESTING_MAX - 1)})
    anna.participant.on_message(dora.peer_id, to_json({"entry": deepest.fields(), "game": GAME}))
    assert has(anna, deepest)


LARGE = {"x": "y" * ENTRY_BYTES_MAX}


def test_member_cannot_send_an_action_that_is_too_large(history: History) -> None:
    anna, dora = program(history, "Anna"), program(history, "Dora")
    sent = replace(next_entry(anna, dora), values=LARGE)
    for message in ({"entry": sent.fields(), "game": GAME}, {"digest": 0, "entry": sent.fields(), "game": GAME}):
        anna.participant.on_message(dora.peer_id, to_json(message))
    send_window(anna, dora, sent)
    assert not has(anna, sent)
    anna.participant.is_ready = False
    anna.participant.on_message(dora.peer_id, to_json({"digest": 0, "entry": sent.fields(), "game": GAME}))
    assert not anna.participant._waiting
    snapshot = anna.participant.timeline.snapshot()
    with pytest.raises(ValueError, match="at most 16,384 bytes"):
        Timeline(FreeRelay(), "").restore({**snapshot, "entries": [[sent.author, *sent.fields()]]})


def test_action_of_agreed_order_that_is_too_large_when_it_is_written_again_has_no_effect() -> None:
    """Otherwise nobody could take a snapshot that contains it."""
    numbers = b"[" + b"1e15," * (ENTRY_BYTES_MAX // 6) + b"0]"
    for values in (json.dumps(LARGE).encode(), b'{"x":%s}' % numbers):
        with pytest.raises(ValueError, match="at most 16,384 bytes"):
            decode_entry(7, b'[1,1,"act","red","run",%s]' % values)


def test_largest_action_that_can_be_sent_is_received(history: History) -> None:
    anna, ben = program(history, "Anna"), program(history, "Ben")
    size = ENTRY_BYTES_MAX - len(next_entry(ben, anna).encode())
    sent = replace(next_entry(ben, anna), values={"x": "forged" + "y" * size})
    assert len(sent.encode()) == ENTRY_BYTES_MAX
    ben.participant.on_message(anna.peer_id, to_json({"entry": sent.fields(), "game": GAME}))
    assert has(ben, sent)
    Timeline(FreeRelay(), "").restore(ben.participant.timeline.snapshot())


DIGESTS: list[Any] = [
    *(None, [], 7, "x", {}, [[1, 0, 0]]),
    *([key, [], ""] for key in (["x", 0, 0], [1], [1, 0], [1, 0, 0, 0], [None, 0, 0], [1.5, 0, 0], [-1, 0, 0])),
    *([[1, 0, 0], counts, ""] for counts in (7, [1], [[1]], [[1, 2, 3]], [["x", 1]], [[1, -1]], [[1, None]])),
]


@pytest.mark.parametrize("is_free", [False, True], ids=["agreed", "free"])
def test_malformed_digest_is_ignored(is_free: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(2, is_free=is_free)
    history.run_for(3.0)
    anna = program(history, "Anna")
    lead = anna.participant._lead()
    assert lead is not None
    fetched: list[str] = []
    monkeypatch.setattr(anna.participant, "fetch", fetched.append)
    for digest in DIGESTS:
        anna.participant.on_message(lead, to_json({"digest": digest, "game": GAME}))
    assert not fetched


INFINITY = float("inf")
CHANGED: list[tuple[str, Any]] = [
    *(("key", value) for value in ([INFINITY, 0, 0], [1], ["x", 0, 0], [-1, 0, 0], [NUMBER_MAX, 0, 0], None)),
    *(("counts", value) for value in ([[1, INFINITY]], [[1]], [["x", 1]], 7)),
    *((f"{table}.seats", value) for table in ("base", "tip") for value in (None, {"queen": ["Eve", 7, 7]})),
    *((f"{table}.result", value) for table in ("base", "tip") for value in (["red", 7], [{}, "won"], ["red"], 7)),
    ("entries", [[INFINITY, 1, 1, "act", "", "", {}]]),
]
"""What a snapshot cannot have, and where."""


@pytest.mark.parametrize("reason", ["", "another state"])
def test_malformed_snapshot_is_refused(history: History, reason: str) -> None:
    anna, ben = program(history, "Anna"), program(history, "Ben")
    before = anna.participant.table
    for path, value in CHANGED:
        wrong = json.loads(json.dumps(ben.participant.timeline.snapshot()))
        *outer, last = path.split(".")
        (wrong[outer[0]] if outer else wrong)[last] = value
        with pytest.raises(ValueError):  # noqa: PT011
            Timeline(FreeRelay(), "").restore(wrong)
        anna.participant._fetch_reason = reason
        anna.participant._asked.clear()
        anna.participant._on_snapshot(ben.peer_id, zlib.compress(json.dumps(wrong).encode()))
        assert (anna.participant._asked, anna.participant.table) == ([ben.peer_id], before), (path, value)


@pytest.mark.parametrize(
    "text", ["\ud800/2", "\x1b[2J/2", "x" * 300 + "/2", "/2", "chess", "chess/", "chess/-2", "chess/two"]
)
def test_answer_that_names_no_game_does_not_keep_a_newcomer_out(
    history: History, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    answer = json.dumps({"game": text, "is_introduced": True}).encode()
    for each in history.alive:
        monkeypatch.setattr(each.participant.introduction, "answer", lambda: answer)
    history.join("Emil")
    history.sim.run_for(5.0)
    late = history.programs[-1]
    assert (late.other_game, late.participant.is_ready) == ("", True)
