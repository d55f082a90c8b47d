"""The result of a chaos run, as JSON and as a table."""

from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from broadloom.testing.chaos.connect_phases import PHASES
from broadloom.testing.chaos.final_audit import FinalAudit
from broadloom.testing.histogram import LatencyHistogram

if TYPE_CHECKING:
    from broadloom.testing.chaos.chaos_run import ChaosRun


@dataclass(slots=True)
class ChaosReport:
    scenario: str
    peers: int
    processes: int
    security: str
    passed: bool = False
    problems: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Uncaught exceptions and unexpected exits of processes."""
    skipped: str = ""
    killed: int = 0
    left: int = 0
    survivors: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    messages: int = 0
    deliveries: int = 0
    lost: int = 0
    delivered_twice: int = 0
    missed: int = 0
    """Messages reported as missed."""
    duplicates: int = 0
    """Redundant copies from other links."""
    hops_max: int = 0
    memory_mb: float = 0.0
    own_memory_mb: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    warnings: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def fill(self, run: "ChaosRun", audit: FinalAudit) -> None:
        """Fill in everything but the CPU time, which is known when the processes have exited."""
        latency = LatencyHistogram()
        for report in audit.reports:
            for peer in report["peers"] + report["left"]:
                latency.merge(peer["latency"])
                self.deliveries += peer["deliveries"]
                self.missed += peer["missed"]
                self.delivered_twice += peer["twice"]
                self.hops_max = max(self.hops_max, peer["hops_max"])
                _add(self.counters, peer["counters"])
            _add(self.warnings, report["warnings"])
        self.lost = audit.lost
        self.duplicates = self.counters.get("duplicates", 0)
        self.messages = sum(head.last_sequence for head in audit.expected.values())
        self.killed, self.left, self.survivors = run.killed, run.left, len(run.members)
        if used := [report for report in audit.reports if report["peers"]]:
            self.memory_mb = median(report["memory_mb"] for report in used)
            self.own_memory_mb = median(report["own_memory_mb"] for report in used)
        self.metrics = run.metrics | {
            "delivered_s": audit.delivered_s,
            "latency_median_ms": latency.quantile_ms(0.5),
            "latency_p99_ms": latency.quantile_ms(0.99),
            "latency_max_ms": latency.max_ns / 1e6,
            **_time_metrics("connect", [peer.connect_time_s for peer in run.joined]),
        }
        if joiners := [peer for peer in run.joined if peer.phases]:
            self.metrics |= _time_metrics("join", [peer.connect_time_s for peer in joiners])
            for name in (*PHASES, "handshakes", "handshakes_sum", "handshakes_busy"):
                unit = "" if name == "handshakes" else "_s"
                self.metrics[f"join_{name}{unit}"] = median(peer.phases[name] for peer in joiners)


def _add(counts: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def _time_metrics(name: str, times_s: list[float]) -> dict[str, float]:
    if not times_s:
        return {}
    ordered = sorted(times_s)
    return {
        f"{name}_median_s": median(ordered),
        f"{name}_p95_s": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
        f"{name}_max_s": ordered[-1],
    }


_METRIC_LABELS = {
    "started_s": "all peers connected after",
    "grown_s": "then one regular fabric after",
    "regular_s": "one regular fabric after",
    "regular_without_paused_s": "one regular fabric without the paused after",
    "merged_s": "one fabric again after",
    "regular_again_s": "one regular fabric again after",
    "delivered_s": "all messages delivered after",
}


def report_table(report: ChaosReport) -> Table:
    rows = Table(box=None, show_header=False, pad_edge=False)
    rows.add_row("peers", f"{report.peers:,} in {report.processes:,} processes, {report.security}")
    rows.add_row("killed, left", f"{report.killed:,}, {report.left:,}")
    metrics = report.metrics
    for name, label in _METRIC_LABELS.items():
        if name in metrics:
            rows.add_row(label, f"{metrics[name]:.2f} s")
    for name in ("connect", "join"):
        if f"{name}_median_s" in metrics:
            median_s, p95_s = metrics[f"{name}_median_s"], metrics[f"{name}_p95_s"]
            rows.add_row(f"time to {name}", f"median {median_s:.3f} s, p95 {p95_s:.3f} s")
    if "join_handshakes" in metrics:
        parts = ", ".join(f"{name} {metrics[f'join_{name}_s'] * 1000:.0f}" for name in PHASES)
        rows.add_row("phases, in ms", parts)
        busy_ms = metrics["join_handshakes_busy_s"] * 1000
        sum_ms = metrics["join_handshakes_sum_s"] * 1000
        rows.add_row("handshakes", f"{metrics['join_handshakes']:g}, {sum_ms:.0f} ms in total, {busy_ms:.0f} ms of CPU")
    if "load_s" in metrics:
        rows.add_row(
            "delivered under load", f"{report.deliveries / metrics['load_s']:,.0f} messages per second in total"
        )
        settled, last = metrics["memory_settled_mb"], metrics["memory_last_mb"]
        rows.add_row(
            "memory of the largest process", f"{settled:.0f} MB after a third of the time, {last:.0f} MB at the end"
        )
    rows.add_row("messages", f"{report.messages:,}")
    rows.add_row("deliveries audited", f"{report.deliveries:,}")
    rows.add_row("lost, delivered twice", f"{report.lost:,}, {report.delivered_twice:,}")
    rows.add_row("reported as missed", f"{report.missed:,}")
    if "latency_median_ms" in metrics:
        times = [metrics[f"latency_{name}_ms"] for name in ("median", "p99", "max")]
        rows.add_row("latency", "median {:.1f} ms, p99 {:.0f} ms, max {:.0f} ms".format(*times))
    rows.add_row("max hops", str(report.hops_max))
    rows.add_row("memory per process", f"{report.memory_mb:.0f} MB, {report.own_memory_mb:.0f} MB not shared")
    rows.add_row("CPU", f"{report.cpu_s:.0f} s in {report.wall_s:.0f} s")
    return rows
