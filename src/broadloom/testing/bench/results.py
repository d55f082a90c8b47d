"""What came of the measurements: one object for programs."""

import platform
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import broadloom
from broadloom.testing.bench.histogram import LatencyHistogram
from broadloom.testing.bench.machine import CORES

if TYPE_CHECKING:
    from broadloom.testing.bench.config import BenchConfig
    from broadloom.testing.bench.machine import ResourceCost

NOISY_FRACTION = 0.1
"""If others take more of the machine than this, figures are not worth comparing."""
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(slots=True)
class BenchResult:
    """Of one measurement; None is what was not measured, or cannot be here."""

    messages: int = 0
    deliveries: int = 0
    duration_s: float = 0.0
    """From the first sending to the last delivery anywhere."""
    broadcasts_per_s: float = 0.0
    deliveries_per_s: float = 0.0
    latency_ms: dict[str, float] | None = None
    connect_ms: list[float] | None = None
    """Of each newcomer."""
    cpu_us_per_delivery: float | None = None
    """Of all processes together."""
    wire_bytes_per_payload_byte: float | None = None
    """On loopback, for each byte that was delivered."""
    duplicates_per_delivery: float | None = None
    """Further ones, that came over other links and were dropped."""
    memory_mb: float = 0.0
    """Of one process, the median; of which its own:"""
    own_memory_mb: float = 0.0
    other_cpu_fraction: float | None = None
    """What anybody else took of the machine's CPU time meanwhile."""
    histogram: LatencyHistogram | None = None

    def as_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__ if name != "histogram"}
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in values.items()}


def compute_result(
    reports: list[dict[str, Any]], first_ns: int, messages: int, size_bytes: int, cost: "ResourceCost"
) -> BenchResult:
    """From what the processes reported after everything had arrived."""
    peers = [peer for report in reports for peer in report["peers"]]
    deliveries = sum(peer["deliveries"] for peer in peers)
    seconds = max(0.0, (max(peer["last_ns"] for peer in peers) - first_ns) / 1e9)
    result = BenchResult(messages, deliveries, seconds)
    latency = LatencyHistogram()
    for peer in peers:
        latency.merge(peer["latency"])
    if latency.total:
        result.histogram = latency
        result.latency_ms = {name: round(latency.quantile_ms(share), 3) for name, share in QUANTILES.items()}
        result.latency_ms["max"] = round(latency.max_ns / 1e6, 3)
    if seconds:
        result.broadcasts_per_s, result.deliveries_per_s = messages / seconds, deliveries / seconds
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
    """What did not arrive as it should, or not at all; then the figures mean nothing."""
    own_network: bool = False
    """Whether all bytes on loopback were ours."""
    wall_s: float = 0.0
    skipped: str = ""

    @property
    def noise(self) -> float:
        """The largest share of the machine that others took during a measurement."""
        return max((each.other_cpu_fraction or 0.0 for each in self.results.values()), default=0.0)

    def as_dict(self) -> dict[str, Any]:
        config = asdict(self.config) | {"security": self.config.security.value}
        return {
            "held": not self.problems and not self.skipped,
            "problems": self.problems,
            "skipped": self.skipped,
            "machine": machine_info(),
            "setting": config,
            "measures": {name: figures.as_dict() for name, figures in self.results.items()},
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
