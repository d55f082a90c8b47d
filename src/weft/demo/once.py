"""`weft demo --once`: a fabric grows, talks, loses some of its peers, repairs itself, others leave in good order; and
then it is audited whether anything was lost."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from weft.demo.analyst import Analyst, needs_spark
from weft.demo.options import Options
from weft.demo.summary import Summary
from weft.lab.lab import Lab
from weft.lab.staff import LabFailed

GROWN_S, GROWN_PER_PEER_S = 60.0, 2.0
REPAIRED_S = 180.0
DELIVERED_S = 120.0
LEAVERS_SHARE = 8
"""One of so many leaves in good order."""
SETTLED_S = 6.0
"""From the last message to those who leave last: by then the audit wants everything to be with everyone."""

Tell = Callable[[str], None]


async def once(options: Options, place: Path, tell: Tell) -> Summary:
    """The whole of it; what went wrong is in the summary."""
    summary = Summary(options.peers)
    tapes = place / "tapes" if options.spark else None
    if options.spark:
        needs_spark()
    async with AsyncExitStack() as stack:
        analyst: Analyst | None = None
        async with Lab.start(options.plan(tapes)) as lab:
            try:
                await _grow(lab, options, summary, tell)
                if tapes is not None:
                    # Spark starts while the peers talk.
                    analyst = Analyst(lab.channel, tapes, place / "results", place / "spark.log", follow=False)
                    await stack.enter_async_context(analyst)
                await _play(lab, options, summary, tell)
            except LabFailed as problem:
                summary.problems.append(str(problem))
            tell("everybody goes")
        _count(lab, summary)
        if analyst is not None:
            tell("Spark audits every delivery")
            answer = await analyst.audit()
            summary.judge(answer["verdict"], answer["guilty"])
            summary.audit_s, summary.spark_start_s = answer["seconds"], analyst.ready_s or 0.0
    return summary


async def _grow(lab: Lab, options: Options, summary: Summary, tell: Tell) -> None:
    began = time.monotonic()
    tell(f"{options.peers} peers come, one after the other")
    await lab.grown(GROWN_S + GROWN_PER_PEER_S * options.peers)
    summary.grown_s, summary.processes = time.monotonic() - began, lab.processes
    tell(f"one fabric after {summary.grown_s:.1f} s; they talk")


async def _play(lab: Lab, options: Options, summary: Summary, tell: Tell) -> None:
    share_s = options.seconds / 4
    await asyncio.sleep(share_s)
    if options.killed:
        tell(f"{options.killed} of them are killed, all at once")
        await lab.kill_some(options.killed)
        repair = await lab.whole(REPAIRED_S)
        if repair is not None:
            tell(f"the fabric is whole again after {repair.took_s:.1f} s; they talk on")
    await asyncio.sleep(share_s)
    newcomers = max(1, options.killed // 4)
    tell(f"newcomers: {newcomers}")
    summary.came = len(await lab.add(newcomers))
    await lab.whole(REPAIRED_S)
    await asyncio.sleep(share_s)
    leavers = max(1, len(lab.now()) // LEAVERS_SHARE)
    tell(f"{leavers} of them leave in good order, in the middle of it all")
    await _leave(lab, leavers, summary)
    await asyncio.sleep(share_s)
    tell("they fall silent; everything has to be with everyone")
    await lab.delivered(DELIVERED_S)
    await asyncio.sleep(SETTLED_S if options.spark else 0.0)
    await _leave(lab, leavers, summary)


async def _leave(lab: Lab, count: int, summary: Summary) -> None:
    """Those that came first, so that the audit of them has much to judge; a few stay in any case."""
    there = [view.id for view in lab.now().values()]
    goers = there[: min(count, len(there) - 2)]
    await lab.leave(goers)
    summary.left += len(goers)
    await lab.whole(REPAIRED_S)


def _count(lab: Lab, summary: Summary) -> None:
    totals, verdict = lab.totals, lab.verdict
    summary.messages, summary.deliveries, summary.missed = totals.sent, totals.delivered, totals.missed
    summary.kills = lab.kills
    # Growing is not the repair of anything.
    summary.repairs = [{"what": each.what, "took_s": round(each.took_s, 3)} for each in list(lab.repairs.done)[1:]]
    summary.latency_p50_ms = totals.latency_all.quantile_ms(0.5)
    summary.latency_p99_ms = totals.latency_all.quantile_ms(0.99)
    summary.hops_max = totals.hops_max
    summary.problems += list(verdict.broken)[:5]
    summary.problems += [f"{promise.name}: {promise.sentence}" for promise in lab.promises()[:3] if not promise.holds]
    summary.problems += [fault.splitlines()[-1] for fault in list(verdict.faults)[:5]]
    if totals.missed:
        summary.problems.append(f"{totals.missed:,} messages had to be given up; the peers were told which")
