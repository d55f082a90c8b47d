"""The results of a benchmark run, as JSON and as a table."""

import platform
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

import broadloom
from broadloom.testing.histogram import LatencyHistogram
from broadloom.testing.processes.process_stats import CORES, ResourceCost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broadloom.testing.bench.config import BenchConfig

NOISY_FRACTION = 0.1
"""If other programs take more of the machine than this, results are not comparable."""
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(slots=True)
class BenchResult:
    """One benchmark; None where something was not or could not be measured."""

    messages: int = 0
    deliveries: int = 0
    duration_s: float = 0.0
    """From the first message sent to the last delivery at any peer."""
    broadcasts_per_s: float = 0.0
    deliveries_per_s: float = 0.0
    latency_ms: dict[str, float] | None = None
    connect_ms: list[float] | None = None
    """One value per joining peer."""
    cpu_us_per_delivery: float | None = None
    """CPU time of all processes together."""
    wire_bytes_per_payload_byte: float | None = None
    """Bytes on the loopback interface per byte delivered."""
    duplicates_per_delivery: float | None = None
    """Redundant copies from other links."""
    memory_mb: float = 0.0
    """Median over the processes."""
    own_memory_mb: float = 0.0
    """The part of it that is not shared with other processes."""
    other_cpu_fraction: float | None = None
    """Share of the machine's CPU time that went to other programs."""
    histogram: LatencyHistogram | None = None

    def as_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__ if name != "histogram"}
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in values.items()}


def compute_result(
    reports: list[dict[str, Any]], first_ns: int, messages: int, size_bytes: int, cost: ResourceCost
) -> BenchResult:
    """Compute a result from the workers' reports after all deliveries."""
    peers = [peer for report in reports for peer in report["peers"]]
    deliveries = sum(peer["deliveries"] for peer in peers)
    duration_s = max(0.0, (max(peer["last_ns"] for peer in peers) - first_ns) / 1e9)
    result = BenchResult(messages, deliveries, duration_s)
    latency = LatencyHistogram()
    for peer in peers:
        latency.merge(peer["latency"])
    if latency.total:
        result.histogram = latency
        result.latency_ms = {name: round(latency.quantile_ms(fraction), 3) for name, fraction in QUANTILES.items()}
        result.latency_ms["max"] = round(latency.max_ns / 1e6, 3)
    if duration_s:
        result.broadcasts_per_s, result.deliveries_per_s = messages / duration_s, deliveries / duration_s
    if deliveries:
        result.cpu_us_per_delivery = cost.cpu_s * 1e6 / deliveries
        if cost.wire_bytes is not None:
            result.wire_bytes_per_payload_byte = cost.wire_bytes / (deliveries * size_bytes)
    if counted := sum(peer["delivered"] for peer in peers):
        result.duplicates_per_delivery = sum(peer["duplicates"] for peer in peers) / counted
    used = [report for report in reports if report["peers"]]
    result.memory_mb = median(report["memory_mb"] for report in used)
    result.own_memory_mb = median(report["own_memory_mb"] for report in used)
    result.other_cpu_fraction = cost.other_cpu_fraction
    return result


@dataclass(slots=True)
class BenchReport:
    config: "BenchConfig"
    results: dict[str, BenchResult] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Violated guarantees; with any, the results are meaningless."""
    errors: list[str] = field(default_factory=list)
    """Uncaught exceptions and unexpected exits of processes."""
    own_network: bool = False
    """Whether the run had a network namespace, and so a loopback interface, of its own."""
    wall_s: float = 0.0
    skipped: str = ""

    @property
    def passed(self) -> bool:
        return not (self.problems or self.errors or self.skipped)

    @property
    def noise(self) -> float:
        """The largest share of CPU time that other programs took during a benchmark."""
        return max((each.other_cpu_fraction or 0.0 for each in self.results.values()), default=0.0)

    def as_dict(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "problems": self.errors + self.problems,
            "skipped": self.skipped,
            "machine": machine_info(),
            "config": asdict(self.config) | {"security": self.config.security.value},
            "benchmarks": {name: result.as_dict() for name, result in self.results.items()},
            "own_network": self.own_network,
            "noisy": self.noise > NOISY_FRACTION,
            "wall_s": round(self.wall_s, 2),
        }


def machine_info() -> dict[str, Any]:
    return {
        "cores": CORES,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "broadloom": broadloom.__version__,
    }


# -- for the terminal


def header(report: BenchReport) -> str:
    config, host = report.config, machine_info()
    cores = f"{host['cores']} cores" if host["cores"] > 1 else "one core"
    receivers = f"{config.receivers} receivers" if config.receivers > 1 else "one receiver"
    what = f"{receivers}, {config.size_bytes:,} bytes, {config.security.value}"
    return f"{what}; {cores}, Python {host['python']}, Broadloom {host['broadloom']}"


def result_table(report: BenchReport, descriptions: "Mapping[str, str]") -> Table:
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column(style="dim")
    for name, result in report.results.items():
        rows.add_row(f"[bold]{name}[/]", "", descriptions[name].format(rate=report.config.rate_per_s))
        for label, value, meaning in _rows(result, report):
            rows.add_row(f"  {label}", value, meaning)
    return rows


def _rows(result: BenchResult, report: BenchReport) -> list[tuple[str, str, str]]:
    if result.connect_ms:
        meaning = f"median of {len(result.connect_ms)}, at most {max(result.connect_ms):.0f} ms"
        return [("connected", f"{median(result.connect_ms):.0f} ms", meaning)]
    if result.latency_ms is not None:
        return [*_latency_rows(result), *_cost_rows(result, report)]
    span = f"{result.messages:,} in {result.duration_s:.2f} s, from first send to last delivery"
    data = f"at all receivers together: {result.deliveries_per_s * report.config.size_bytes / 1e6:,.0f} MB/s of data"
    return [
        ("broadcasts", f"{result.broadcasts_per_s:,.0f} /s", span),
        ("deliveries", f"{result.deliveries_per_s:,.0f} /s", data),
        *_cost_rows(result, report),
        ("memory", f"{result.memory_mb:.0f} MB", f"per process, {result.own_memory_mb:.0f} MB of it not shared"),
    ]


def _latency_rows(result: BenchResult) -> list[tuple[str, str, str]]:
    assert result.latency_ms is not None
    assert result.histogram is not None
    times = {name: f"{time_ms:.2f} ms" for name, time_ms in result.latency_ms.items()}
    return [
        ("p50", times["p50"], f"one way, over {result.deliveries:,} deliveries"),
        ("p90", times["p90"], ""),
        ("p99", times["p99"], f"slowest {times['max']}"),
        ("", "histogram", result.histogram.sparkline()),
    ]


def _cost_rows(result: BenchResult, report: BenchReport) -> list[tuple[str, str, str]]:
    rows = []
    if result.cpu_us_per_delivery is not None:
        rows.append(("CPU", f"{result.cpu_us_per_delivery:,.1f} µs", "per delivery, all processes together"))
    if result.wire_bytes_per_payload_byte is not None:
        shared = "" if report.own_network else " (shared with other programs)"
        rows.append(
            ("wire", f"{result.wire_bytes_per_payload_byte:.2f}", f"bytes on loopback{shared} per byte delivered")
        )
    if result.duplicates_per_delivery is not None:
        rows.append(("copies", f"{result.duplicates_per_delivery:.2f}", "redundant copies per delivery"))
    return rows


def noise_note(report: BenchReport) -> str:
    """How far the results can be trusted; empty if unknown."""
    if not any(each.other_cpu_fraction is not None for each in report.results.values()):
        return ""
    text = f"Other programs used up to {report.noise:.0%} of this machine's CPU"
    if report.noise > NOISY_FRACTION:
        return f"{text}: the results are noisy. Repeat on an idle machine."
    return f"{text}: the machine was idle."
