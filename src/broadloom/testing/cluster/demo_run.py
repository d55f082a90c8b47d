"""The demo without a browser: a cluster grows, exchanges messages, loses peers, repairs itself, and is audited.

The audit of the tapes is passed in (`pipeline.sidecar_client` has it), so the test tools do not depend on the pipeline.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

from broadloom.testing.checks.settling import Verdict, format_seconds, verdict
from broadloom.testing.cluster.cluster import LocalCluster
from broadloom.testing.cluster.config import ClusterConfig, TrafficRates
from broadloom.testing.errors import ClusterError, ConfigError

PEERS = 24
DURATION_S = 60.0
DURATION_MAX_S = 3600.0
KILL_ONE_IN = 5
LEAVE_ONE_IN = 8
GROWTH_TIMEOUT_S, GROWTH_TIMEOUT_PER_PEER_S = 60.0, 2.0
REPAIR_TIMEOUT_S = 180.0
DELIVERY_TIMEOUT_S = 120.0
PROBLEMS_MAX = 5
_FINDINGS = (
    "missing_count",
    "duplicate_count",
    "out_of_order_count",
    "reply_before_parent_count",
    "receiver_not_member_count",
    "delivered_to_author_count",
    "forged_count",
    "not_recorded_count",
    "reported_missed_count",
)
"""Columns of the audit summary that count violations."""


@dataclass(frozen=True, slots=True)
class DemoConfig:
    peers: int = PEERS
    chat_per_s: float | None = None
    """None, here and below: the default for this number of peers."""
    ticks_per_s: float | None = None
    identifications_per_s: float | None = None
    ads_per_s: float | None = None
    port: int = 0
    """Port of the web pages; 0: the default port, or any free one."""
    browser: bool = True
    spark: bool = True
    directory: Path | None = None
    """Where tapes and tables are kept; None: a temporary directory."""
    duration_s: float = DURATION_S
    """Without a browser: duration of the traffic."""
    kill: int | None = None
    """Without a browser: number of peers to kill."""

    def validated(self) -> "DemoConfig":
        if self.kill is not None and not 0 <= self.kill < self.peers - 1:
            raise ConfigError(f"of {self.peers} peers, 0 to {self.peers - 2} can be killed, not {self.kill}")
        if not 1 <= self.duration_s <= DURATION_MAX_S:
            raise ConfigError(f"--duration is 1 to {DURATION_MAX_S:g} seconds, not {self.duration_s:g}")
        self.cluster_config(None)
        return self

    @property
    def kill_count(self) -> int:
        return self.kill if self.kill is not None else max(1, self.peers // KILL_ONE_IN)

    def cluster_config(self, tapes: Path | None) -> ClusterConfig:
        rates = asdict(TrafficRates.default_for(self.peers))
        given = {each.name: getattr(self, each.name) for each in fields(TrafficRates)}
        rates |= {name: rate for name, rate in given.items() if rate is not None}
        return ClusterConfig(peers=self.peers, rates=TrafficRates(**rates), tape=tapes)

    @contextmanager
    def working_directory(self) -> Iterator[Path]:
        """The directory of the demo; a temporary one is deleted at the end."""
        if self.directory is None:
            with tempfile.TemporaryDirectory(prefix="broadloom-demo-", ignore_cleanup_errors=True) as directory:
                yield Path(directory)
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--dir {self.directory} cannot be used: {error.strerror or error}") from None
        yield self.directory.absolute()


@dataclass(slots=True)
class DemoSummary:
    peers: int
    processes: int = 0
    grown_s: float = 0.0
    """Until all peers formed one regular fabric."""
    messages: int = 0
    deliveries: int = 0
    killed: int = 0
    joined: int = 0
    """Peers added after the growth."""
    left: int = 0
    recoveries: list[dict[str, Any]] = field(default_factory=list)
    latency_p50_ms: float = 0.0
    latency_p99_ms: float = 0.0
    hops_max: int = 0
    missed: int = 0
    problems: list[str] = field(default_factory=list)
    waits_for: list[str] = field(default_factory=list)
    """What a partition or a repair leaves open."""
    audited_by: str = "live checks of the cluster"
    audit: dict[str, Any] = field(default_factory=dict)
    """The pipeline's audit summary."""
    audit_s: float = 0.0
    spark_start_s: float = 0.0
    bill: list[dict[str, Any]] = field(default_factory=list)
    """Of the news service that ran beside the cluster: what each subscriber owes for each topic."""

    @property
    def verdict(self) -> Verdict:
        is_judged = self.deliveries > 0 and self.audit.get("verdict") != Verdict.UNJUDGED
        return verdict(len(self.problems), len(self.waits_for), is_judged=is_judged)

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.HELD

    def apply_audit(self, audit: Mapping[str, Any], violations: list[Mapping[str, Any]]) -> None:
        """Take in the pipeline's audit: every due delivery has to be on the tapes, once and in order."""
        self.audited_by = "Spark, over the tapes"
        self.audit = dict(audit)
        for name in _FINDINGS:
            if audit[name]:
                self.problems.append(
                    f"the audit found {audit[name]:,} deliveries {name.removesuffix('_count').replace('_', ' ')}"
                )
        self.problems += [f"{row['finding']}: {row['detail']}" for row in violations[:PROBLEMS_MAX]]
        if audit["verdict"] == Verdict.UNSETTLED:
            self.waits_for.append(audit["waits_for"])
        elif audit["verdict"] == Verdict.BROKEN and not self.problems:
            self.problems.append("the audit found a broken guarantee")
        for name, what in (
            ("dropped_row_count", "rows dropped by recorders"),
            ("quarantined_file_count", "quarantined files"),
        ):
            if audit[name]:
                self.problems.append(f"{what}: {audit[name]:,}")

    def as_dict(self) -> dict[str, Any]:
        return {"passed": self.passed, "verdict": self.verdict.value, **asdict(self)}

    def rows(self) -> list[tuple[str, str]]:
        """Labels and values for a terminal."""
        rows = [
            ("peers", f"{self.peers} in {self.processes} processes, one fabric after {format_seconds(self.grown_s)}"),
            ("messages", f"{self.messages:,}, delivered {self.deliveries:,} times"),
            ("changes", f"{self.killed} killed, {self.joined} joined, {self.left} left gracefully"),
            *(("repair", f"{format_seconds(each['duration_s'])}: {each['cause']}") for each in self.recoveries),
            ("latency", f"median {self.latency_p50_ms:.1f} ms, p99 {self.latency_p99_ms:.0f} ms"),
            ("hops", f"{self.hops_max} at most"),
        ]
        if self.audit:
            rows.append(
                ("Spark audit", f"{self.audit['due_count']:,} deliveries due, {self.audit['missing_count']:,} missing")
            )
            if self.audit["notes"]:
                rows.append(("not judged", str(self.audit["notes"])))
            rows.append(
                ("", f"took {format_seconds(self.audit_s)}, after {format_seconds(self.spark_start_s)} to start")
            )
            for each in self.bill:
                text = (
                    f"{each['subscriber']}, {each['topic']}, {each['plan_name']}: {each['connected_s']:.0f} s connected"
                )
                rows.append(("bill by Spark", f"{text}, {each['amount']} {each['currency']}"))
        elif self.passed:
            rows.append(("live audit", "every peer has every message due to it, once and in order"))
        return rows


class TapeAudit(Protocol):
    """Audits the tapes of a cluster in another process."""

    @property
    def ready_s(self) -> float | None:
        """How long it took to start."""
        ...

    async def audit(self) -> dict[str, Any]:
        """Return `summary`, `violations` and `seconds`, and optionally `bill`."""
        ...


StartTapeAudit = Callable[[LocalCluster, Path], AbstractAsyncContextManager[TapeAudit]]
"""Called with the cluster and the directory that holds its `tapes`."""
ReportProgress = Callable[[str], None]


async def run_demo(
    config: DemoConfig, directory: Path, report: ReportProgress, start_audit: StartTapeAudit | None = None
) -> DemoSummary:
    """Run the demo; failures are in the summary. Without `start_audit` only the live checks of the cluster audit it."""
    summary = DemoSummary(config.peers)
    tapes = directory / "tapes" if start_audit is not None or config.directory is not None else None
    async with AsyncExitStack() as stack:
        tape_audit: TapeAudit | None = None
        async with LocalCluster.start(config.cluster_config(tapes)) as cluster:
            try:
                await _grow(cluster, config, summary, report)
                if start_audit is not None:
                    # It starts while the peers exchange messages.
                    tape_audit = await stack.enter_async_context(start_audit(cluster, directory))
                await _run_phases(cluster, config, summary, report)
            except ClusterError as error:
                is_settled = cluster.fabric_state().is_settled
                (summary.problems if is_settled else summary.waits_for).append(str(error))
            report("stopping all peers")
        _fill_summary(cluster, summary)
        if tape_audit is not None:
            report("auditing every delivery with Spark")
            result = await tape_audit.audit()
            summary.apply_audit(result["summary"], result["violations"])
            summary.audit_s, summary.spark_start_s = result["seconds"], tape_audit.ready_s or 0.0
            summary.bill = result.get("bill", [])
    return summary


async def _grow(cluster: LocalCluster, config: DemoConfig, summary: DemoSummary, report: ReportProgress) -> None:
    began = time.monotonic()
    report(f"starting {config.peers} peers")
    await cluster.wait_until_grown(GROWTH_TIMEOUT_S + GROWTH_TIMEOUT_PER_PEER_S * config.peers)
    summary.grown_s, summary.processes = time.monotonic() - began, cluster.process_count
    report(f"one fabric after {summary.grown_s:.1f} s; sending messages")


async def _run_phases(cluster: LocalCluster, config: DemoConfig, summary: DemoSummary, report: ReportProgress) -> None:
    phase_s = config.duration_s / 4
    await asyncio.sleep(phase_s)
    if config.kill_count:
        report(f"killing {config.kill_count} peers at once")
        await cluster.kill_random(config.kill_count)
        recovery = await cluster.wait_until_converged(REPAIR_TIMEOUT_S)
        if recovery is not None:
            report(f"repaired in {recovery.duration_s:.1f} s")
    await asyncio.sleep(phase_s)
    joiners = max(1, config.kill_count // 4)
    report(f"adding {joiners} peers")
    summary.joined = len(await cluster.add(joiners))
    await cluster.wait_until_converged(REPAIR_TIMEOUT_S)
    await asyncio.sleep(phase_s)
    leave_count = max(1, len(cluster.now()) // LEAVE_ONE_IN)
    report(f"{leave_count} peers leave gracefully")
    await _leave(cluster, leave_count, summary)
    await asyncio.sleep(phase_s)
    report("stopping the traffic; waiting for all deliveries")
    await cluster.wait_until_delivered(DELIVERY_TIMEOUT_S)
    await _leave(cluster, leave_count, summary)


async def _leave(cluster: LocalCluster, count: int, summary: DemoSummary) -> None:
    """The oldest peers leave, which gives the audit most to check; at least two stay."""
    peer_ids = list(cluster.now())
    leaving = peer_ids[: min(count, len(peer_ids) - 2)]
    await cluster.leave(leaving)
    summary.left += len(leaving)
    await cluster.wait_until_converged(REPAIR_TIMEOUT_S)


def _fill_summary(cluster: LocalCluster, summary: DemoSummary) -> None:
    totals, checks = cluster.totals, cluster.guarantee_checks
    summary.messages, summary.deliveries, summary.missed = totals.sent, totals.delivered, totals.missed
    summary.killed = cluster.kill_count
    summary.recoveries = [
        {"cause": each.cause, "duration_s": round(each.duration_s, 3)}
        for each in list(cluster.recoveries.completed)[1:]  # the first one is the growth
    ]
    summary.latency_p50_ms = totals.latency_all.quantile_ms(0.5)
    summary.latency_p99_ms = totals.latency_all.quantile_ms(0.99)
    summary.hops_max = totals.hops_max
    summary.problems += list(checks.violations)[:PROBLEMS_MAX]
    # Regularity and connectivity are checked by waiting for convergence.
    delivery_guarantees = cluster.guarantees()[:3]
    summary.problems += [f"{each.name}: {each.summary}" for each in delivery_guarantees if not each.holds]
    summary.problems += [error.splitlines()[-1] for error in list(checks.errors)[:PROBLEMS_MAX]]
    if totals.missed:
        summary.problems.append(f"{totals.missed:,} messages were reported as missed")
