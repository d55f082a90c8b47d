"""The times that a meeting guarantees, in virtual time with links of 40 ms. `measure.py` prints them for any size."""

import pytest

from broadloom.apps.conference.core import MeetingCore
from tests.apps.conference.measure import MeetingTimes, run_meeting

VIEWPOINT_S = 0.5
LATE_S = 2.0
NEXT_LEADER_S = 3.0


def problems(times: MeetingTimes) -> list[str]:
    found = {
        f"a viewpoint took {times.viewpoint_s:.2f} s": times.viewpoint_s > VIEWPOINT_S,
        f"a late joiner had 1,000 items after {times.late_s:.2f} s": times.late_s > LATE_S,
        f"the next one led {times.next_leader_s:.2f} s after the leader died": times.next_leader_s > NEXT_LEADER_S,
        f"{times.leaders_max} participants led at a time": times.leaders_max != 1,
    }
    return [text for text, is_problem in found.items() if is_problem]


@pytest.mark.parametrize("count", [24, pytest.param(200, marks=pytest.mark.long)])
def test_viewpoints_late_joiners_and_a_new_leader_are_in_time(count: int) -> None:
    assert problems(run_meeting(count)) == []


def test_second_leader_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeetingCore, "is_leader", lambda self, _now: self.state.floor.holder is not None)
    assert problems(run_meeting(24)) == ["25 participants led at a time"], "with the late joiner"
