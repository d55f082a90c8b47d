"""What came of a trial: one object for programs, one table for people."""

from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from weft.trial.closing import Audit
from weft.trial.histogram import Histogram
from weft.trial.timeline import PHASES

if TYPE_CHECKING:
    from weft.trial.trial import Trial


@dataclass(slots=True)
class Result:
    scenario: str
    peers: int
    processes: int
    security: str
    held: bool = False
    problems: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Exceptions that nobody caught, processes that ended by themselves."""
    skipped: str = ""
    killed: int = 0
    left: int = 0
    survivors: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    messages: int = 0
    deliveries: int = 0
    lost: int = 0
    twice: int = 0
    missed: int = 0
    """Messages that peers were told they missed."""
    copies: int = 0
    """Further copies that came over other links, and were dropped."""
    hops_max: int = 0
    memory_mb: float = 0.0
    own_memory_mb: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    warnings: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def fill(result: Result, trial: "Trial", audit: Audit) -> None:
    """From what was reported. CPU seconds are added when the processes have ended."""
    latency = Histogram()
    for report in audit.reports:
        for peer in report["peers"] + report["left"]:
            latency.merge(peer["latency"])
            result.deliveries += peer["deliveries"]
            result.missed += peer["missed"]
            result.twice += peer["twice"]
            result.hops_max = max(result.hops_max, peer["hops_max"])
            for name, count in peer["counters"].items():
                result.counters[name] = result.counters.get(name, 0) + count
        for text, count in report["warnings"].items():
            result.warnings[text] = result.warnings.get(text, 0) + count
    result.lost = audit.lost
    result.copies = result.counters.get("duplicates", 0)
    result.messages = sum(head.last for head in audit.roll.values())
    result.killed, result.left, result.survivors = trial.killed, trial.left, len(trial.members)
    used = [report for report in audit.reports if report["peers"]]
    if used:
        result.memory_mb = median(report["memory_mb"] for report in used)
        result.own_memory_mb = median(report["own_memory_mb"] for report in used)
    result.figures = trial.figures | {
        "delivered_s": audit.delivered_s,
        "latency_median_ms": latency.quantile_ms(0.5),
        "latency_p99_ms": latency.quantile_ms(0.99),
        "latency_max_ms": latency.most_ns / 1e6,
    }
    result.figures |= _times("connect", [known.took_s for known in trial.known.values() if known.peer])
    newcomers = [known for known in trial.known.values() if known.phases]
    if newcomers:
        result.figures |= _times("newcomer", [known.took_s for known in newcomers])
        for name in (*PHASES, "handshakes", "handshakes_sum", "handshakes_busy"):
            unit = "" if name == "handshakes" else "_s"
            result.figures[f"newcomer_{name}{unit}"] = median(known.phases[name] for known in newcomers)


def _times(name: str, times_s: list[float]) -> dict[str, float]:
    if not times_s:
        return {}
    ordered = sorted(times_s)
    return {
        f"{name}_median_s": median(ordered),
        f"{name}_p95_s": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
        f"{name}_max_s": ordered[-1],
    }


_WORDS = {
    "started_s": "all started in",
    "grown_s": "and one regular fabric after",
    "woven_s": "one regular fabric after",
    "whole_without_s": "one regular fabric without the frozen after",
    "one_fabric_s": "one fabric again after",
    "whole_again_s": "one regular fabric again after",
    "delivered_s": "everything delivered after",
}


def table(result: Result) -> Table:
    rows = Table(box=None, show_header=False, pad_edge=False)
    rows.add_row("peers", f"{result.peers:,} in {result.processes:,} processes, {result.security}")
    rows.add_row("killed, left", f"{result.killed:,}, {result.left:,}")
    figures = result.figures
    for name, words in _WORDS.items():
        if name in figures:
            rows.add_row(words, f"{figures[name]:.2f} s")
    for name in ("connect", "newcomer"):
        if f"{name}_median_s" in figures:
            median_s, p95_s = figures[f"{name}_median_s"], figures[f"{name}_p95_s"]
            rows.add_row(f"time to {name}", f"median {median_s:.3f} s, p95 {p95_s:.3f} s")
    if "newcomer_handshakes" in figures:
        parts = ", ".join(f"{name} {figures[f'newcomer_{name}_s'] * 1000:.0f}" for name in PHASES)
        rows.add_row("of which, in ms", parts)
        busy_ms = figures["newcomer_handshakes_busy_s"] * 1000
        sum_ms = figures["newcomer_handshakes_sum_s"] * 1000
        rows.add_row("handshakes", f"{figures['newcomer_handshakes']:g}, {sum_ms:.0f} ms in all, busy {busy_ms:.0f} ms")
    if "load_s" in figures:
        rows.add_row("delivered under load", f"{result.deliveries / figures['load_s']:,.0f} messages a second in all")
        settled, last = figures["memory_settled_mb"], figures["memory_last_mb"]
        rows.add_row("memory of the largest", f"{settled:.0f} MB after a third of the time, {last:.0f} MB at the end")
    rows.add_row("messages", f"{result.messages:,}")
    rows.add_row("deliveries audited", f"{result.deliveries:,}")
    rows.add_row("lost, delivered twice", f"{result.lost:,}, {result.twice:,}")
    rows.add_row("told as missed", f"{result.missed:,}")
    if "latency_median_ms" in figures:
        times = [figures[f"latency_{name}_ms"] for name in ("median", "p99", "max")]
        rows.add_row("latency", "median {:.1f} ms, p99 {:.0f} ms, most {:.0f} ms".format(*times))
    rows.add_row("hops at most", str(result.hops_max))
    rows.add_row("memory of a process", f"{result.memory_mb:.0f} MB, its own {result.own_memory_mb:.0f} MB")
    rows.add_row("CPU", f"{result.cpu_s:.0f} s within {result.wall_s:.0f} s")
    return rows
