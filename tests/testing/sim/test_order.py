"""Agreed order in the simulator under all faults, and mutants that the checks must detect."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from broadloom.order.catch_up import FetchedLog
from broadloom.order.delivery import Delivery
from broadloom.order.joining import Joining
from broadloom.order.messages import Takeover, Vote
from broadloom.order.model import Rewound
from broadloom.order.policy import AvailablePolicy, SafePolicy
from broadloom.order.replica import Replica
from broadloom.order.sequencer import Sequencer
from broadloom.order.store import MemoryOrderStore
from broadloom.order.submissions import Submissions
from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.order_traffic import OrderTraffic
from broadloom.testing.sim.scenario import Scenario, load, parse
from broadloom.testing.sim.step_checker import GuaranteeViolation

MODES = ["available", "safe"]
SEEDS = range(1, 3)
"""`make soak` runs a thousand."""
DEAD_S = 1.0
"""Play continues within this time after the sequencer's process has ended."""


def scenario(mode: str, *steps: dict[str, Any], peers: int = 6) -> Scenario:
    content = {
        "peers": peers,
        "roster": True,
        "step": [{"do": "grow"}, {"do": "order_traffic", "mode": mode, "per_s": 10}, *steps],
    }
    return parse("order", content)


@pytest.mark.parametrize(("mode", "seed"), [*product(MODES, SEEDS), ("safe", 567)])
def test_members_agree_under_all_faults(mode: str, seed: int) -> None:
    """Seed 567 once let all members die that newcomers had heard of."""
    metrics = load(f"order-{mode}").run(seed).metrics
    assert metrics["delivered"] > 500
    assert metrics["sequencerchanged"] > 6


def test_member_replaces_a_dead_connection_to_the_sequencer() -> None:
    """It fetched over a connection that had survived a partition only at its own end, for ever."""
    load("order-safe").with_roster().with_dissemination(DisseminationMode.TREE).run(30002)


def test_assignment_that_came_during_a_failed_fetch_is_taken():
    """It waited for the next message of the sequencer, which had nothing more to order."""
    load("order-available").with_roster().run(60549)


@pytest.mark.parametrize("seed", range(1, 4))
def test_crashes_alone_revoke_nothing(seed: int) -> None:
    faults = {"do": "order_faults", "duration_s": 15, "kinds": ["kill", "leave", "add"]}
    run = scenario("available", {"do": "wait", "duration_s": 3}, faults, {"do": "finish_order"}).run(seed)
    assert "rewound" not in run.metrics
    assert run.metrics["sequencerchanged"] > 10


@pytest.mark.parametrize("seed", range(1, 4))
def test_newcomer_that_is_paused_while_it_enters_follows_the_sequencer(seed: int) -> None:
    """It took its pause for silence of the others, led an epoch of its own, and the log forked."""
    run = scenario("available", {"do": "wait", "duration_s": 5}, peers=2).run(seed)
    order, simulation = run.simulation.order, run.simulation
    (epoch,) = {each.replica.log.epoch for each in order.replicas}
    newcomer = simulation.add_peer()
    while newcomer not in [each.node for each in order.replicas]:
        assert simulation.clock.now < 30
        simulation.run_for(0.001)
    newcomer.pause()
    simulation.run_for(2.5)
    newcomer.resume()
    order.finish(20)
    assert {each.replica.log.epoch for each in order.replicas} == {epoch}


@pytest.mark.parametrize("mode", MODES)
def test_takeover_is_quick_when_the_process_of_the_sequencer_ends(mode: str) -> None:
    run = scenario(mode, {"do": "wait", "duration_s": 5}, peers=12).run(1)
    order, simulation = run.simulation.order, run.simulation
    (sequencer,) = order.sequencer_nodes()
    sequencer.kill()
    killed_at = simulation.clock.now
    order.set_rate(0)

    def is_replaced() -> bool:
        return any(each.replica.is_sequencing for each in order.replicas)

    while not is_replaced():
        simulation.run_for(0.01)
    assert simulation.clock.now - killed_at < DEAD_S
    order.finish(20)


def test_same_seed_gives_the_same_order() -> None:
    def log(seed: int) -> list[bytes]:
        run = load("order-available").run(seed)
        replica = run.simulation.order.replicas[0].replica
        return [replica.log.entry(index).data for index in range(1, replica.log.end + 1)]

    assert log(3) == log(3)


# -- mutants


def keep_no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that voted still accepts assignments of the former epoch."""
    vote = Replica._on_takeover

    def on_takeover(self: Replica, author: int, message: Takeover) -> None:
        before = self.fence
        vote(self, author, message)
        if not self.log.lineage:
            return
        self.fence = before

    monkeypatch.setattr(Replica, "_on_takeover", on_takeover)


def count_one_vote_as_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SafePolicy, "majority", property(lambda self: 1))


def choose_the_shortest_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(self: object, votes: dict[int, Vote]) -> Vote:
        return min(votes.values(), key=lambda each: each.end)

    monkeypatch.setattr(SafePolicy, "choose", choose)
    monkeypatch.setattr(AvailablePolicy, "choose", choose)


def rewind_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    emit = OrderTraffic._on_event

    def on_event(self: OrderTraffic, runtime: Any, event: Any) -> None:
        if not isinstance(event, Rewound):
            emit(self, runtime, event)

    monkeypatch.setattr(OrderTraffic, "_on_event", on_event)


def forget_one_revoked_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    emit = OrderTraffic._on_event

    def on_event(self: OrderTraffic, runtime: Any, event: Any) -> None:
        emit(self, runtime, event._replace(entries=event.entries[:-1]) if isinstance(event, Rewound) else event)

    monkeypatch.setattr(OrderTraffic, "_on_event", on_event)


def drop_own_revoked_submissions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Submissions, "put_back_own", lambda *_args: None)


def deliver_before_it_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = Delivery.advance
    monkeypatch.setattr(Delivery, "advance", lambda self, _limit: advance(self, self._log.end))


def forget_the_store_at_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryOrderStore, "append", lambda *_args: None)


def order_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sequencer forgets after a takeover which submissions were ordered, and so do the others."""
    replace_log = Joining.replace_log

    def replaced(self: Joining, fetched: FetchedLog) -> bool:
        own = dict(self._replica.submissions.own)
        log = self._replica.log
        ordered = [log.entry(index) for index in range(log.base + 1, log.end + 1)]
        result = replace_log(self, fetched)
        for entry in ordered[-1:]:
            if entry.author == self._replica.me and not own:
                self._replica.submit(entry.data)
        return result

    monkeypatch.setattr(Joining, "replace_log", replaced)


def acknowledge_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sequencer takes every entry for final as soon as it has stored it itself."""
    monkeypatch.setattr(Sequencer, "_commit", lambda self, _policy: self._replica.on_committed(self._replica.log.end))


WAIT = {"do": "wait", "duration_s": 3}
FINISH = {"do": "finish_order", "timeout_s": 30}


def crashes() -> Scenario:
    """Only crashes, which revoke nothing."""
    return scenario("available", WAIT, {"do": "order_faults", "kinds": ["kill", "leave", "add"]}, FINISH)


def forgetful() -> Scenario:
    """A partition that lasts longer than messages are retained: one side never gets the submissions of the other."""
    apart: list[dict[str, Any]] = [
        {"do": "partition", "fraction": 0.4},
        {"do": "wait", "duration_s": 15},
        {"do": "heal"},
    ]
    made = scenario("available", WAIT, *apart, FINISH)
    return replace(made, settings=replace(made.settings, peer=replace(made.settings.peer, retention_s=2.0)))


def usurped() -> Scenario:
    """Takeovers while the sequencer is well."""
    busy = {"do": "order_traffic", "mode": "safe", "per_s": 60}
    return scenario(
        "safe", busy, WAIT, {"do": "order_faults", "duration_s": 30, "interval_s": 0.3, "kinds": ["takeover"]}, FINISH
    )


def available() -> Scenario:
    return load("order-available")


def safe() -> Scenario:
    return load("order-safe")


MUTANTS = [
    (available, rewind_silently, 1, "after"),
    (available, forget_one_revoked_entry, 1, "revoked entries"),
    (available, order_twice, 1, "2 times|after"),
    (forgetful, drop_own_revoked_submissions, 1, "after|not ordered"),
    (crashes, choose_the_shortest_log, 3, "no member was cut off"),
    (safe, count_one_vote_as_majority, 2, "another entry|Diverged"),
    (safe, choose_the_shortest_log, 4, "another entry|Diverged"),
    (safe, deliver_before_it_is_final, 4, "another entry|Diverged|revoked"),
    (safe, acknowledge_for_others, 4, "another entry|Diverged"),
    pytest.param(safe, forget_the_store_at_a_restart, 5, "another entry|Diverged|is at|after", marks=pytest.mark.long),
    (usurped, keep_no_fence, 2, "another entry|Diverged|is at|sequencers"),
]
"""A scenario, what is broken, the first seed to try, and what the check reports."""
SEEDS_TRIED = 24
"""A fault needs a certain course of events, and any change of the protocol changes the histories."""


@pytest.mark.parametrize(("make", "mutant", "seed", "text"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_checks_detect_the_mutant(
    make: Callable[[], Scenario], mutant: Any, seed: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    tried = (violation_of(make(), each) for each in range(seed, seed + SEEDS_TRIED))
    found = next((each for each in tried if each is not None), None)
    assert re.search(text, str(found))


def violation_of(scenario: Scenario, seed: int) -> GuaranteeViolation | None:
    try:
        scenario.run(seed)
    except GuaranteeViolation as violation:
        return violation
    return None


@pytest.mark.parametrize("make", [crashes, forgetful, usurped])
def test_scenario_of_a_mutant_passes_without_it(make: Callable[[], Scenario]) -> None:
    make().run(1)
