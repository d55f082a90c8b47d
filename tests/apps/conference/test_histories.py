"""Meetings with kills, partitions, joins and leaves: one leader in each partition, and equal items at rest.

The mutants show that the checks can fail.
"""

from collections.abc import Callable
from typing import Any

import pytest

from broadloom.apps.conference.core import Duties, MeetingCore
from tests.apps.conference.histories import run_seed
from tests.histories import HistoryError

BATCHES = [range(first, first + 5) for first in range(1, 21, 5)]
"""`make soak` runs thousands."""


@pytest.mark.parametrize("seeds", BATCHES, ids=str)
def test_one_leader_and_equal_items_after_kills_splits_and_joins(seeds: range) -> None:
    counts = [run_seed(seed).counts for seed in seeds]
    assert sum(each["kill"] + each["partition"] for each in counts) > 5


def test_report_of_a_sequencer_whose_roster_lags_behind_its_order_makes_no_second_leader() -> None:
    """After a merge it had entries of members that were not in its roster yet, and reported them as gone."""
    run_seed(166)


def test_members_that_distrust_each_other_agree_on_one_order_after_a_partition() -> None:
    """They went on taking over from each other, each without the other's vote."""
    run_seed(131)


def _lead_until_ordered(_real: Any) -> Callable[..., bool]:
    return lambda self, _now: self.state.floor.holder == self.me


def _no_duties(_real: Any) -> Callable[..., Duties]:
    return lambda *_args, **_options: Duties([], None)


def _keep_state(_real: Any) -> Callable[..., None]:
    return lambda *_args: None


MUTANTS = {
    "a leader leads until its release is ordered": (MeetingCore, "is_leader", _lead_until_ordered, "two leaders"),
    "a leader that is gone is not reported": (MeetingCore, "duties", _no_duties, "has the floor"),
    "a rewind is ignored": (MeetingCore, "on_rewound", _keep_state, "another state|two leaders"),
}
"""What is changed, and what the check says."""


@pytest.mark.parametrize("name", MUTANTS)
def test_checks_find_mutant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, method, mutate, problem = MUTANTS[name]
    monkeypatch.setattr(kind, method, mutate(getattr(kind, method)))
    with pytest.raises(HistoryError, match=problem):
        _run_seeds()


def _run_seeds() -> None:
    for seed in range(1, 60):
        run_seed(seed)
