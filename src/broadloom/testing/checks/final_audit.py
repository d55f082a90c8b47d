"""The end of a trial: everything delivered that is owed, one regular fabric, and what everybody reports."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from broadloom.testing.checks.audit import PeerView, expected_deliveries, find_convergence_problems, find_false_missed
from broadloom.testing.checks.delivery_log import AuthorHead, latest_heads

if TYPE_CHECKING:
    from broadloom.testing.chaos.chaos_run import ChaosRun

DELIVERY_TIMEOUT_S = 60.0
POLL_S = 0.5
"""How often everyone is asked whether anything is lacking."""


@dataclass(slots=True)
class FinalAudit:
    """What the peers that were there at the end had to say."""

    expected: dict[int, AuthorHead] = field(default_factory=dict)
    reports: list[dict[str, Any]] = field(default_factory=list)
    delivered_s: float = 0.0
    """From the end of the traffic until nothing was lacking."""
    lost: int = 0
    """How often a peer lacks a message that it should have, or was told that it missed one that can be had."""


def run_final_audit(chaos_run: "ChaosRun") -> FinalAudit:
    """Stop the traffic, wait for what is owed, check every promise; what does not hold is a problem of the trial."""
    audit = FinalAudit()
    chaos_run.listener.phase("traffic is over; waiting until everything is delivered")
    chaos_run.set_traffic(0)
    began = time.monotonic()
    chaos_run.run(POLL_S)
    _wait_for_delivery(chaos_run, audit)
    audit.delivered_s = time.monotonic() - began
    chaos_run.listener.phase("auditing")
    _compare_missed(chaos_run, audit)
    _check_fabric(chaos_run, audit)
    return audit


def expected_heads(chaos_run: "ChaosRun") -> dict[int, AuthorHead]:
    """Up to where each author's messages are owed, by what everyone says now."""
    replies = chaos_run.pool.request(chaos_run.pool.responsive, do="heads", gone=list(chaos_run.departed))
    living = latest_heads((*each,) for answer in replies for each in answer["living"])
    survivors = latest_heads((*each,) for answer in replies for each in answer["gone"])
    return expected_deliveries(living, chaos_run.departed, survivors, chaos_run.kills_ns)


def _wait_for_delivery(chaos_run: "ChaosRun", audit: FinalAudit) -> None:
    deadline = time.monotonic() + DELIVERY_TIMEOUT_S
    while True:
        audit.expected = expected_heads(chaos_run)
        rows = [[author, head.last_sequence, head.last_sent_ns] for author, head in audit.expected.items()]
        replies = chaos_run.pool.request(chaos_run.pool.responsive, do="check", roll=rows)
        missing = [text for answer in replies for text in answer["lacking"]]
        count = sum(answer["lacking_count"] for answer in replies)
        if not count:
            break
        if time.monotonic() > deadline:
            audit.lost = count
            chaos_run.problems += [f"promise 1: after {DELIVERY_TIMEOUT_S:g} s: {text}" for text in missing[:10]]
            chaos_run.problems.append(f"promise 1: {count} times something is lacking")
            break
        chaos_run.run(POLL_S)
    chaos_run.problems += [f"promise 1: {text}" for answer in replies for text in answer["beyond"]]


def _compare_missed(chaos_run: "ChaosRun", audit: FinalAudit) -> None:
    """Whatever was told as missed must not be in anybody's hands."""
    missed = [
        tuple(each)
        for answer in chaos_run.pool.request(chaos_run.pool.responsive, do="missed")
        for each in answer["told"]
    ]
    if not missed:
        return
    ranges = sorted({each[1:] for each in missed})
    replies = chaos_run.pool.request(chaos_run.pool.responsive, do="held", ranges=ranges)
    held = {(author, first, last): had for answer in replies for author, first, last, had in answer["held"]}
    problems = find_false_missed(missed, held, audit.expected)
    audit.lost += len(problems)
    chaos_run.problems += [f"promise 1: {text}" for text in problems[:10]]


def _check_fabric(chaos_run: "ChaosRun", audit: FinalAudit) -> None:
    """Reports of all, at a moment when the fabric is whole: an exchange of edges may be under way now and then."""
    deadline = time.monotonic() + chaos_run.config.repair_timeout_s
    while True:
        audit.reports = chaos_run.pool.request(chaos_run.pool.responsive, do="report")
        rows = [peer["view"] for report in audit.reports for peer in report["peers"]]
        views = {
            number: PeerView(peer, state, tuple(neighbours), changed_ns)
            for number, peer, state, changed_ns, neighbours in rows
        }
        problem = find_convergence_problems(views, chaos_run.config.degree)
        if problem is None and (missing := chaos_run.members.keys() - views.keys()):
            problem = f"peer {min(missing)} was not reported"
        if problem is None:
            return
        if time.monotonic() > deadline:
            chaos_run.problems.append(f"promise 4: after {chaos_run.config.repair_timeout_s:g} s: {problem}")
            return
        chaos_run.run(POLL_S)
