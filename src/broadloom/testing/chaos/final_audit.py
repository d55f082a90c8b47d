"""The audit at the end of a chaos run: every due message delivered, one regular fabric, all reports collected."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from broadloom.testing.checks.audit import Comparison, encode_heads, find_false_missed
from broadloom.testing.checks.guarantees import PeerView, find_convergence_problems

if TYPE_CHECKING:
    from broadloom.testing.chaos.chaos_run import ChaosRun
    from broadloom.testing.checks.delivery_log import AuthorHead

DELIVERY_TIMEOUT_S = 60.0
POLL_S = 0.5
PROBLEMS_REPORTED_MAX = 10


@dataclass(slots=True)
class FinalAudit:
    """What the peers reported at the end."""

    expected: "dict[int, AuthorHead]" = field(default_factory=dict)
    reports: list[dict[str, Any]] = field(default_factory=list)
    delivered_s: float = 0.0
    """From the end of the traffic until nothing was missing."""
    lost: int = 0
    """Pairs of author and receiver with missing messages, plus messages reported as missed although available."""


async def run_final_audit(run: "ChaosRun") -> FinalAudit:
    """Stop the traffic, wait for all deliveries and check every guarantee. Violations go to `run.problems`."""
    audit = FinalAudit()
    run.listener.phase("waiting until all messages are delivered")
    run.set_traffic(0)
    began = time.monotonic()
    await run.sleep(POLL_S)
    await _wait_for_delivery(run, audit)
    audit.delivered_s = time.monotonic() - began
    run.listener.phase("auditing")
    await _check_missed(run, audit)
    await _check_fabric(run, audit)
    return audit


async def _wait_for_delivery(run: "ChaosRun", audit: FinalAudit) -> None:
    deadline = time.monotonic() + DELIVERY_TIMEOUT_S
    while True:
        heads = await run.request("author_heads", departed=run.audit.departed)
        audit.expected = run.audit.expected(heads)
        rows = encode_heads(audit.expected)
        comparison = Comparison.from_replies(await run.request("find_missing", expected=rows))
        if not comparison.missing_count:
            break
        if time.monotonic() > deadline:
            audit.lost = comparison.missing_count
            texts = comparison.descriptions[:PROBLEMS_REPORTED_MAX]
            run.problems += [f"guarantee 1: after {DELIVERY_TIMEOUT_S:g} s, {text}" for text in texts]
            run.problems.append(f"guarantee 1: messages missing for {audit.lost} author-receiver pairs")
            break
        await run.sleep(POLL_S)
    for reply in await run.request("find_unsent", expected=rows):
        run.problems += [f"guarantee 1: {text}" for text in reply["unsent"]]


async def _check_missed(run: "ChaosRun", audit: FinalAudit) -> None:
    """No peer may have a message that another peer got a `Missed` event for."""
    missed = [tuple(row) for reply in await run.request("missed_ranges") for row in reply["missed"]]
    if not missed:
        return
    replies = await run.request("find_held", ranges=sorted({row[1:] for row in missed}))
    held = {(author, first, last): sequence for reply in replies for author, first, last, sequence in reply["held"]}
    problems = find_false_missed(missed, held, audit.expected)
    audit.lost += len(problems)
    run.problems += [f"guarantee 1: {text}" for text in problems[:PROBLEMS_REPORTED_MAX]]


async def _check_fabric(run: "ChaosRun", audit: FinalAudit) -> None:
    """Collect the reports at a moment when the fabric is regular: peers exchange edges now and then."""
    timeout_s = run.config.repair_timeout_s
    deadline = time.monotonic() + timeout_s
    while True:
        audit.reports = await run.request("report")
        views = [PeerView(*peer["view"]) for report in audit.reports for peer in report["peers"]]
        problem = find_convergence_problems(views, run.config.degree)
        if problem is None and (absent := run.members.keys() - {view.peer_id for view in views}):
            problem = f"peer {min(absent):016x} was not reported"
        if problem is None:
            return
        if time.monotonic() > deadline:
            run.problems.append(f"guarantee 4: after {timeout_s:g} s, {problem}")
            return
        await run.sleep(POLL_S)
