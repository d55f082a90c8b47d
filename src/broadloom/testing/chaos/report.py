"""The result of a chaos run, as JSON and as a table."""

from contextlib import suppress
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


_ROWS = {
    "peers": "{peers:,} in {processes:,} processes, {security}",
    "killed, left": "{killed:,}, {left:,}",
    "all peers connected after": "{started_s:.2f} s",
    "then one regular fabric after": "{grown_s:.2f} s",
    "one regular fabric after": "{regular_s:.2f} s",
    "one regular fabric without the paused after": "{regular_without_paused_s:.2f} s",
    "one fabric again after": "{merged_s:.2f} s",
    "one regular fabric again after": "{regular_again_s:.2f} s",
    "all messages delivered after": "{delivered_s:.2f} s",
    "time to connect": "median {connect_median_s:.3f} s, p95 {connect_p95_s:.3f} s",
    "time to join": "median {join_median_s:.3f} s, p95 {join_p95_s:.3f} s",
    "phases, in ms": ", ".join(f"{name} {{join_{name}_ms:.0f}}" for name in PHASES),
    "handshakes": "{join_handshakes:g}, {join_handshakes_sum_ms:.0f} ms in total, "
    "{join_handshakes_busy_ms:.0f} ms of CPU",
    "delivered under load": "{load_deliveries_per_s:,.0f} messages per second in total",
    "memory of the largest process": "{memory_settled_mb:.0f} MB after a third of the time, "
    "{memory_last_mb:.0f} MB at the end",
    "messages": "{messages:,}",
    "deliveries audited": "{deliveries:,}",
    "lost, delivered twice": "{lost:,}, {delivered_twice:,}",
    "reported as missed": "{missed:,}",
    "latency": "median {latency_median_ms:.1f} ms, p99 {latency_p99_ms:.0f} ms, max {latency_max_ms:.0f} ms",
    "max hops": "{hops_max}",
    "memory per process": "{memory_mb:.0f} MB, {own_memory_mb:.0f} MB not shared",
    "CPU": "{cpu_s:.0f} s in {wall_s:.0f} s",
}
"""Labels, and what they say. A row is left out if the scenario did not measure it."""


def report_table(report: ChaosReport) -> Table:
    values = report.as_dict() | report.metrics
    values |= {f"{name.removesuffix('_s')}_ms": 1000 * value for name, value in report.metrics.items()}
    if "load_s" in values:
        values["load_deliveries_per_s"] = report.deliveries / values["load_s"]
    rows = Table(box=None, show_header=False, pad_edge=False)
    for label, template in _ROWS.items():
        with suppress(KeyError):
            rows.add_row(label, template.format_map(values))
    return rows
