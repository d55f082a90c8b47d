"""Random histories: one handler and one end for every request; and broken switches, which the checks must find."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from broadloom.protocol.requests.outgoing import OutcomeKind
from broadloom.switch.codec import Verdict
from broadloom.switch.directory import Directory
from broadloom.switch.handlers import Handlers
from broadloom.switch.model import FailureReason, IfLost
from broadloom.switch.observers import Observers
from broadloom.switch.outgoing import Sender
from tests.histories import HistoryError
from tests.switch.history import run_seed

BATCHES = [range(first, first + 5) for first in range(1, 201, 5)]
"""`make soak` runs thousands."""
MUTANT_SEEDS = range(1, 40)


@pytest.mark.parametrize("seeds", BATCHES, ids=str)
def test_every_request_has_one_handler_and_one_end(seeds: range) -> None:
    for seed in seeds:
        history = run_seed(seed)
        assert history.counts["HANDLED"], "not everything fails"


def test_request_that_a_host_has_passed_on_has_no_second_handler_when_the_host_closes() -> None:
    run_seed(30051)


def test_messages_that_wait_for_a_program_are_ended_once_when_it_cannot_start() -> None:
    run_seed(1901)


def test_deadline_of_a_request_holds_if_another_begins_while_one_ends() -> None:
    run_seed(1763)


def test_program_whose_host_was_cut_off_may_handle_a_request_again_as_its_own_host() -> None:
    run_seed(400092)


def test_handler_that_was_cut_off_may_begin_after_the_next_one() -> None:
    run_seed(1095)


def test_programs_that_are_started_occur_in_the_histories() -> None:
    counts = Counter[str]()
    for seed in range(2, 22, 2):
        counts.update(run_seed(seed).counts)
    assert counts["started"]
    assert counts["handled by a started program"]
    assert counts["NOT_STARTED"]


def test_same_seed_gives_the_same_history() -> None:
    histories = [run_seed(3), run_seed(3)]
    assert histories[0].counts == histories[1].counts
    assert histories[0].sim.events == histories[1].sim.events


# -- mutants


def asks_the_next_one_after_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    on_outcome = Sender._on_outcome

    def mutant(self: Sender, out: Any, candidate: Any, outcome: Any) -> None:
        if outcome.kind in (OutcomeKind.GONE, OutcomeKind.NO_ANSWER):
            outcome = outcome._replace(kind=OutcomeKind.GONE, sent=False)
        on_outcome(self, out, candidate, outcome)

    monkeypatch.setattr(Sender, "_on_outcome", mutant)


def takes_a_refusal_for_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    on_result = Sender._on_result

    def mutant(self: Sender, out: Any, result: Any) -> None:
        if result.reason is FailureReason.REFUSED and out.message.if_lost is IfLost.NEXT:
            result = result._replace(verdict=Verdict.DECLINED)
        on_result(self, out, result)

    monkeypatch.setattr(Sender, "_on_result", mutant)


def hands_a_message_to_two_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    accept = Handlers.accept

    def mutant(self: Handlers, message: Any, *args: Any) -> Any:
        if len([each for each in self if self._matches(each.pattern, message)]) > 1:
            accept(self, message, args[0], args[1], lambda _result: None, args[3])
        return accept(self, message, *args)

    monkeypatch.setattr(Handlers, "accept", mutant)


def takes_an_incomplete_directory_for_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Directory, "is_complete", property(lambda _self: True))
    monkeypatch.setattr(Directory, "_missing", lambda _self: [])


def forgets_parked_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sender, "on_directory_changed", lambda self: self._parked.clear())
    monkeypatch.setattr(Sender, "_on_deadline", lambda _self, _out: None)


def ends_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    end = Sender._end

    def mutant(self: Sender, out: Any, *args: Any) -> None:
        end(self, out, *args)
        if out.message.if_lost is IfLost.NEXT:
            out.on_step(self._step(out, *args))

    monkeypatch.setattr(Sender, "_end", mutant)


def observes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    observe = Observers.deliver

    def mutant(self: Observers, copy: Any) -> bool:
        observe(self, copy)
        return observe(self, copy)

    monkeypatch.setattr(Observers, "deliver", mutant)


@pytest.mark.parametrize(
    ("mutate", "finding"),
    [
        pytest.param(asks_the_next_one_after_a_loss, "two handlers|was handled by|NO_HANDLER", marks=pytest.mark.long),
        (takes_a_refusal_for_a_loss, "has a second handler, but .* was not lost"),
        (hands_a_message_to_two_handlers, "two handlers|a second handler"),
        pytest.param(takes_an_incomplete_directory_for_complete, "ends with NO_HANDLER, but", marks=pytest.mark.long),
        (forgets_parked_requests, "has no end|beyond"),
        (ends_twice, "two ends"),
        (observes_twice, "twice"),
    ],
)
def test_checks_find_a_broken_switch(
    monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None], finding: str
) -> None:
    mutate(monkeypatch)

    def run_all() -> None:
        for seed in MUTANT_SEEDS:
            run_seed(seed)

    with pytest.raises(HistoryError, match=finding):
        run_all()
