"""`broadloom demo --headless`: a fabric grows, talks, loses some peers, repairs itself, others leave in good order;
and then it is audited whether anything was lost."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from broadloom.pipeline.sidecar_client import SidecarClient, require_spark
from broadloom.testing.cluster.cluster import LocalCluster
from broadloom.testing.cluster.demo_options import DemoConfig
from broadloom.testing.processes.pool import ClusterError
from broadloom.web.demo_summary import DemoSummary

GROWTH_TIMEOUT_S, GROWTH_TIMEOUT_PER_PEER_S = 60.0, 2.0
REPAIR_TIMEOUT_S = 180.0
DELIVERY_TIMEOUT_S = 120.0
LEAVE_ONE_IN = 8
"""One of so many leaves in good order."""
SETTLE_DELAY_S = 6.0
"""From the last message to those who leave last: by then the audit wants everything to be with everyone."""

ReportProgress = Callable[[str], None]


async def run_headless(config: DemoConfig, directory: Path, report: ReportProgress) -> DemoSummary:
    """The whole of it; what went wrong is in the summary."""
    summary = DemoSummary(config.peers)
    tapes = directory / "tapes" if config.spark else None
    if config.spark:
        require_spark()
    async with AsyncExitStack() as stack:
        sidecar: SidecarClient | None = None
        async with LocalCluster.start(config.cluster_config(tapes)) as cluster:
            try:
                await _grow(cluster, config, summary, report)
                if tapes is not None:
                    # Spark starts while the peers talk.
                    sidecar = SidecarClient(
                        cluster.channel, tapes, directory / "results", directory / "spark.log", follow=False
                    )
                    await stack.enter_async_context(sidecar)
                await _run_phases(cluster, config, summary, report)
            except ClusterError as problem:
                summary.problems.append(str(problem))
            report("everybody goes")
        _fill_summary(cluster, summary)
        if sidecar is not None:
            report("Spark audits every delivery")
            reply = await sidecar.audit()
            summary.apply_audit(reply["audit_summary"], reply["violations"])
            summary.audit_s, summary.spark_start_s = reply["seconds"], sidecar.ready_s or 0.0
    return summary


async def _grow(cluster: LocalCluster, config: DemoConfig, summary: DemoSummary, report: ReportProgress) -> None:
    began = time.monotonic()
    report(f"{config.peers} peers come, one after the other")
    await cluster.wait_until_grown(GROWTH_TIMEOUT_S + GROWTH_TIMEOUT_PER_PEER_S * config.peers)
    summary.grown_s, summary.processes = time.monotonic() - began, cluster.process_count
    report(f"one fabric after {summary.grown_s:.1f} s; they talk")


async def _run_phases(cluster: LocalCluster, config: DemoConfig, summary: DemoSummary, report: ReportProgress) -> None:
    phase_s = config.duration_s / 4
    await asyncio.sleep(phase_s)
    if config.kill_count:
        report(f"{config.kill_count} of them are killed, all at once")
        await cluster.kill_random(config.kill_count)
        recovery = await cluster.wait_until_converged(REPAIR_TIMEOUT_S)
        if recovery is not None:
            report(f"the fabric is whole again after {recovery.duration_s:.1f} s; they talk on")
    await asyncio.sleep(phase_s)
    joiners = max(1, config.kill_count // 4)
    report(f"newcomers: {joiners}")
    summary.joined = len(await cluster.add(joiners))
    await cluster.wait_until_converged(REPAIR_TIMEOUT_S)
    await asyncio.sleep(phase_s)
    leave_count = max(1, len(cluster.now()) // LEAVE_ONE_IN)
    report(f"{leave_count} of them leave in good order, in the middle of it all")
    await _leave(cluster, leave_count, summary)
    await asyncio.sleep(phase_s)
    report("they fall silent; everything has to be with everyone")
    await cluster.wait_until_delivered(DELIVERY_TIMEOUT_S)
    await asyncio.sleep(SETTLE_DELAY_S if config.spark else 0.0)
    await _leave(cluster, leave_count, summary)


async def _leave(cluster: LocalCluster, count: int, summary: DemoSummary) -> None:
    """Those that came first, so that the audit of them has much to judge; a few stay in any case."""
    peer_ids = [view.peer_id for view in cluster.now().values()]
    leaving = peer_ids[: min(count, len(peer_ids) - 2)]
    await cluster.leave(leaving)
    summary.left += len(leaving)
    await cluster.wait_until_converged(REPAIR_TIMEOUT_S)


def _fill_summary(cluster: LocalCluster, summary: DemoSummary) -> None:
    totals, guarantees = cluster.totals, cluster.guarantee_checks
    summary.messages, summary.deliveries, summary.missed = totals.sent, totals.delivered, totals.missed
    summary.killed = cluster.kill_count
    # Growing is not the repair of anything.
    summary.recoveries = [
        {"cause": each.cause, "duration_s": round(each.duration_s, 3)}
        for each in list(cluster.recoveries.completed)[1:]
    ]
    summary.latency_p50_ms = totals.latency_all.quantile_ms(0.5)
    summary.latency_p99_ms = totals.latency_all.quantile_ms(0.99)
    summary.hops_max = totals.hops_max
    summary.problems += list(guarantees.violations)[:5]
    summary.problems += [
        f"{promise.name}: {promise.summary}" for promise in cluster.guarantees()[:3] if not promise.holds
    ]
    summary.problems += [fault.splitlines()[-1] for fault in list(guarantees.errors)[:5]]
    if totals.missed:
        summary.problems.append(f"{totals.missed:,} messages had to be given up; the peers were told which")
