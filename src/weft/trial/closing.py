"""The end of a trial: everything delivered that is owed, one regular fabric, and what everybody reports."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weft.trial.audit import View, owed, regretted, unrest
from weft.trial.ledger import Head, furthest

if TYPE_CHECKING:
    from weft.trial.trial import Trial

DELIVERED_S = 60.0
LOOK_S = 0.5
"""How often everyone is asked whether anything is lacking."""


@dataclass(slots=True)
class Audit:
    """What the peers that were there at the end had to say."""

    roll: dict[int, Head] = field(default_factory=dict)
    reports: list[dict[str, Any]] = field(default_factory=list)
    delivered_s: float = 0.0
    """From the end of the traffic until nothing was lacking."""
    lost: int = 0
    """How often a peer lacks a message that it should have, or was told that it missed one that can be had."""


def close(trial: "Trial") -> Audit:
    """Stop the traffic, wait for what is owed, check every promise; what does not hold is a problem of the trial."""
    audit = Audit()
    trial.teller.phase("traffic is over; waiting until everything is delivered")
    trial.traffic(0)
    began = time.monotonic()
    trial.run(LOOK_S)
    _deliver(trial, audit)
    audit.delivered_s = time.monotonic() - began
    trial.teller.phase("auditing")
    _compare_missed(trial, audit)
    _fabric(trial, audit)
    return audit


def roll_of(trial: "Trial") -> dict[int, Head]:
    """Up to where each author's messages are owed, by what everyone says now."""
    answers = trial.crew.ask(trial.crew.living, do="heads", gone=list(trial.gone))
    living = furthest((*each,) for answer in answers for each in answer["living"])
    survivors = furthest((*each,) for answer in answers for each in answer["gone"])
    return owed(living, trial.gone, survivors, trial.deaths_ns)


def _deliver(trial: "Trial", audit: Audit) -> None:
    deadline = time.monotonic() + DELIVERED_S
    while True:
        audit.roll = roll_of(trial)
        told = [[author, head.last, head.last_ns] for author, head in audit.roll.items()]
        answers = trial.crew.ask(trial.crew.living, do="check", roll=told)
        lacking = [text for answer in answers for text in answer["lacking"]]
        count = sum(answer["lacking_count"] for answer in answers)
        if not count:
            break
        if time.monotonic() > deadline:
            audit.lost = count
            trial.problems += [f"promise 1: after {DELIVERED_S:g} s: {text}" for text in lacking[:10]]
            trial.problems.append(f"promise 1: {count} times something is lacking")
            break
        trial.run(LOOK_S)
    trial.problems += [f"promise 1: {text}" for answer in answers for text in answer["beyond"]]


def _compare_missed(trial: "Trial", audit: Audit) -> None:
    """Whatever was told as missed must not be in anybody's hands."""
    told = [tuple(each) for answer in trial.crew.ask(trial.crew.living, do="missed") for each in answer["told"]]
    if not told:
        return
    ranges = sorted({each[1:] for each in told})
    answers = trial.crew.ask(trial.crew.living, do="held", ranges=ranges)
    held = {(author, first, last): had for answer in answers for author, first, last, had in answer["held"]}
    problems = regretted(told, held, audit.roll)
    audit.lost += len(problems)
    trial.problems += [f"promise 1: {text}" for text in problems[:10]]


def _fabric(trial: "Trial", audit: Audit) -> None:
    """Reports of all, at a moment when the fabric is whole: an exchange of edges may be under way now and then."""
    deadline = time.monotonic() + trial.plan.within_s
    while True:
        audit.reports = trial.crew.ask(trial.crew.living, do="report")
        rows = [peer["view"] for report in audit.reports for peer in report["peers"]]
        views = {
            number: View(peer, state, tuple(neighbours), changed_ns)
            for number, peer, state, changed_ns, neighbours in rows
        }
        problem = unrest(views, trial.plan.degree)
        if problem is None and (missing := trial.members.keys() - views.keys()):
            problem = f"peer {min(missing)} was not reported"
        if problem is None:
            return
        if time.monotonic() > deadline:
            trial.problems.append(f"promise 4: after {trial.plan.within_s:g} s: {problem}")
            return
        trial.run(LOOK_S)
