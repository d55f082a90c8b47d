"""State for late joiners in the simulator under all faults, and mutants that the checks must detect."""

from typing import Any

import pytest

from broadloom.protocol.broadcast.receiver import Receiver
from broadloom.protocol.state.fetch import StateFetch
from broadloom.protocol.state.server import StateOffer
from broadloom.protocol.state.stream_tracker import StreamTracker
from broadloom.testing.sim.scenario import load
from broadloom.testing.sim.step_checker import GuaranteeViolation

SEEDS = range(1, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_newcomers_get_everything_exactly_once_under_all_faults(seed: int) -> None:
    metrics = load("state").run(seed).metrics
    assert metrics["fetched"] > 5


def test_newcomer_reports_messages_as_missed_that_only_members_had_that_are_gone() -> None:
    load("state").run(39)


# -- mutants


def _snapshot_in_the_middle_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamTracker, "when_between", lambda _self, callback: callback())


def _reader_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    original = StreamTracker.end_fetch
    monkeypatch.setattr(
        StreamTracker, "end_fetch", lambda self, position, missed: original(self, position and {}, missed)
    )


def _helper_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    original = StateOffer.add
    monkeypatch.setattr(StateOffer, "add", lambda self, incoming, _required: original(self, incoming, {}))
    monkeypatch.setattr(StateFetch, "_objection", lambda _self, _manifest, _required: "")
    monkeypatch.setattr(StreamTracker, "required", lambda _self: {})


def _unread_counts_as_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamTracker, "position", StreamTracker._passed)


def _older_messages_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Receiver, "begin_state", lambda _self: None)


@pytest.mark.parametrize(
    ("mutate", "text"),
    [
        (_snapshot_in_the_middle_of_a_message, "reads .* (a second time|without message)"),
        (_reader_is_not_cut, "reads .* a second time"),
        (_helper_does_not_wait, "reads .* without message|has never got"),
        (_unread_counts_as_read, "reads .* without message|has never got"),
        (_older_messages_are_left_out, "reads .* without message|has never got"),
    ],
)
def test_mutant_is_detected(mutate: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    with pytest.raises(GuaranteeViolation, match=f"guarantee 11, at .*: .*({text})"):
        _run_seeds()


def _run_seeds() -> None:
    for seed in range(3, 23):
        load("state").run(seed)
