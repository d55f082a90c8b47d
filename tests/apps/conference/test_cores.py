"""Actions, the state and the minutes, without a channel."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.apps.conference import MeetingState, live
from broadloom.apps.conference.actions import (
    LIST_MAX,
    NAMES,
    TEXT_BYTES_MAX,
    Action,
    Annotate,
    Arrive,
    ClosePoll,
    HandOver,
    Leave,
    OpenPoll,
    Publish,
    ReleaseFloor,
    ReportGone,
    RequestFloor,
    SentAction,
    SetAgenda,
    SetView,
    TakeBack,
    Vote,
    decode,
    encode,
)
from broadloom.apps.conference.floor import Floor
from broadloom.apps.conference.minutes import FORMATS
from broadloom.apps.conference.state import GUEST

ANNA, BEN, CARLA = 1, 2, 3
POINT = (1.0, 2.0, 3.0)


def state_after(*actions: tuple[int, Action]) -> tuple[MeetingState, list[bool]]:
    """The number of an action is its place here, so that the id of an item can be named."""
    state = MeetingState()
    done = [
        state.apply(author, SentAction(number, 1_700_000_000_000, action))
        for number, (author, action) in enumerate(actions, 1)
    ]
    return state, done


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(NAMES)),
    st.lists(VALUES, min_size=2, max_size=2),
    st.dictionaries(
        st.sampled_from(["part", "text", "at", "to", "option", "poll", "is_up"]), VALUES | st.lists(VALUES)
    ),
)
def test_anything_that_is_not_an_action_is_none(name: str, numbers: list[Any], values: dict[str, Any]) -> None:
    data = json.dumps([*numbers, name, values]).encode()
    found = decode(data)
    assert found is None or encode(found)
    assert live.decode(data) is None


@pytest.mark.parametrize(
    "action",
    [
        Annotate("rib", "x" * (TEXT_BYTES_MAX + 1)),
        Annotate("rib", " "),
        Annotate("rib", "here", (float("nan"), 0.0, 0.0)),
        SetAgenda(("item",) * (LIST_MAX + 1)),
        Arrive(7),  # type: ignore[arg-type]
        Publish("mass", "rib", {}),
        Publish("mass", "rib", {"kg": float("inf")}),
        Publish("mass", "rib", {"kg": 10**400}),
        Publish("mass", "rib", {"kg": [1]}),  # type: ignore[dict-item]
        Publish("mass", "rib", {str(each): each for each in range(LIST_MAX + 1)}),
    ],
    ids=str,
)
def test_action_beyond_a_limit_cannot_be_sent(action: Action) -> None:
    with pytest.raises(ValueError, match="not a valid action"):
        encode(SentAction(1, 0, action))


def test_actions_that_are_not_permitted_change_nothing() -> None:
    begin = (ANNA, Arrive("Anna")), (ANNA, RequestFloor()), (BEN, OpenPoll("ready?", ("yes", "no")))
    before, _ = state_after(*begin)
    for author, action in (
        (BEN, SetView(POINT, POINT)),
        (BEN, HandOver(BEN)),
        (ANNA, HandOver(CARLA)),
        (BEN, TakeBack()),
        (BEN, ReleaseFloor()),
        (BEN, ReportGone(ANNA, 1)),
        (CARLA, ClosePoll("2-3")),
        (ANNA, Vote("2-3", 2)),
        (ANNA, Vote("2-9", 0)),
        (CARLA, OpenPoll("really?", ("yes",))),
        (CARLA, RequestFloor()),
    ):
        after, done = state_after(*begin, (author, action))
        after.numbers = before.numbers
        assert after == before, action
        assert not done[-1], action


def test_participant_that_connects_again_has_one_vote() -> None:
    poll = (ANNA, Arrive("Anna")), (ANNA, OpenPoll("ready?", ("yes", "no")))
    state, done = state_after(*poll, (ANNA, Vote("1-2", 0)), (BEN, Arrive("Anna")), (BEN, Vote("1-2", 1)))
    assert (state.polls["1-2"].counts, all(done)) == ((0, 1), True), "the last one counts"
    state, _ = state_after(*poll, (ANNA, Vote("1-2", 0)), (BEN, Arrive("Ben")), (BEN, Vote("1-2", 0)))
    assert state.polls["1-2"].counts == (2, 0)
    guests = (BEN, Arrive(GUEST)), (BEN, Vote("1-2", 0)), (CARLA, Arrive(GUEST)), (CARLA, Vote("1-2", 0))
    assert state_after(*poll, *guests)[0].polls["1-2"].counts == (2, 0), "guests have no name to share"
    state, done = state_after(*poll, (CARLA, Vote("1-2", 0)))
    assert (state.polls["1-2"].counts, done[-1]) == ((0, 0), False), "it has not arrived"


def test_floor_goes_to_the_next_in_the_queue_in_the_order_of_requests() -> None:
    floor = Floor()
    for each in (ANNA, BEN, CARLA, BEN):
        floor.request(each)
    assert (floor.holder, list(floor.queue)) == (ANNA, [BEN, CARLA])
    floor.hand_over(ANNA, CARLA)
    assert (floor.holder, floor.lender, list(floor.queue)) == (CARLA, ANNA, [BEN])
    floor.take_back(ANNA)
    assert floor.is_recalled
    floor.hand_over(CARLA, ANNA)
    assert (floor.holder, floor.lender, floor.is_recalled) == (ANNA, None, False)
    floor.release(ANNA)
    floor.release(BEN)
    assert (floor.holder, floor.term) == (None, 4)


def test_floor_is_not_handed_to_a_participant_that_has_left() -> None:
    begin = (ANNA, Arrive("Anna")), (BEN, Arrive("Ben")), (ANNA, RequestFloor())
    state, done = state_after(*begin, (BEN, Leave()), (ANNA, HandOver(BEN)))
    assert (state.floor.holder, done[-1]) == (ANNA, False)
    state, _ = state_after(*begin, (ANNA, HandOver(BEN)), (ANNA, TakeBack()), (ANNA, Leave()))
    assert (state.floor.holder, state.floor.lender, state.floor.is_recalled) == (BEN, None, False)


def test_report_that_did_not_know_the_last_action_of_the_leader_is_obsolete() -> None:
    begin = (ANNA, Arrive("Anna")), (ANNA, RequestFloor())
    state, done = state_after(*begin, (ANNA, SetView(POINT, POINT)), (BEN, ReportGone(ANNA, 2)))
    assert (state.floor.holder, done[-2:]) == (ANNA, [True, False])
    assert state.apply(BEN, SentAction(9, 0, ReportGone(ANNA, 3)))
    assert state.floor.holder is None


def test_minutes_escape_what_participants_wrote() -> None:
    deep: list[tuple[int, Action]] = [
        (ANNA, Annotate("rib", "reply", reply_to=f"1-{number}")) for number in range(3, 40)
    ]
    state, _ = state_after(
        (ANNA, Arrive("Anna <b>")),
        (ANNA, SetAgenda(("# one", "two"))),
        (ANNA, Annotate("rib", "a\n- b \x1b[31m", POINT)),
        *deep,
        (BEN, Publish("stress", "rib", {"max_mpa": 212.5, "case": "<b>"})),
        (BEN, RequestFloor()),
        (BEN, ReleaseFloor()),
    )
    texts: dict[str, Any] = {name: "".join(write(state, "wing|7")) for name, write in FORMATS.items()}
    assert "**Anna \\<b\\>** from 2023-11-14 22:13 UTC\n" in texts["md"]
    assert "\\# one" in texts["md"]
    assert "a - b \\x1b" in texts["md"].replace("\\\\", "\\")
    assert "- **rib** stress: max\\_mpa 212.5, case \\<b\\> (" in texts["md"]
    assert "<b>" not in texts["html"].replace('<b dir="auto">', "")
    assert len(json.loads(texts["json"])["notes"]) == 38


def test_time_of_a_hostile_clock_is_written() -> None:
    state = MeetingState()
    state.apply(ANNA, SentAction(1, (1 << 64) - 1, Arrive("Anna")))
    assert "9999-12-31" in "".join(FORMATS["md"](state, "wing"))
