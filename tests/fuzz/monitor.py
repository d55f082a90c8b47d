"""`VictimMonitor`: checks from their reports that the victims work as they should, whatever is sent to them."""

from dataclasses import dataclass, field
from typing import Any

HEARTBEAT_S = 5.0
"""Longest time without a report."""
DELIVERY_S = 20.0
"""Longest time for an honest message to reach the others; less than their retention."""
WARM_UP_S = 75.0
"""Caches, windows and retention buffers are full by then."""
GROWTH_KB_MAX = 40 << 10
"""Allowed growth of memory after the warm-up, for fragmentation and short peaks."""
SLOPE_KB_PER_MINUTE_MAX = 3 << 10
SLOPE_S = 180.0
"""The slope of memory is measured over this time at the end, if the run is long enough."""
RSS_KB_MAX = 400 << 10


@dataclass
class VictimMonitor:
    """Monitors one process of victims."""

    mode: str
    started_at: float
    last_report_at: float
    findings: list[str] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)
    lag_s: float = 0.0
    late_s: float = 0.0
    last: dict[str, Any] = field(default_factory=dict)

    def on_report(self, report: dict[str, Any], now: float) -> None:
        self.last_report_at = now
        self.last = report
        self.memory.append((now - self.started_at, report["rss_kb"]))
        self.lag_s = max(self.lag_s, report["lag_s"])
        self.late_s = max(self.late_s, report["late_s"])
        for finding in report["findings"]:
            self._add_finding(finding)
        if report["late_s"] > DELIVERY_S:
            self._add_finding(f"a message has not been delivered for {DELIVERY_S:g} s")
        if report["rss_kb"] > RSS_KB_MAX:
            self._add_finding(f"memory above {RSS_KB_MAX >> 10} MiB")

    def check_silence(self, now: float) -> None:
        if now - self.last_report_at > HEARTBEAT_S:
            self._add_finding(f"the event loop was blocked for {HEARTBEAT_S:g} s")

    def on_exit(self, code: int | None) -> None:
        self._add_finding(f"the process exited with status {code}")

    def check_memory(self) -> None:
        """Called at the end: memory must not grow without bound."""
        warm = [(at, kb) for at, kb in self.memory if at >= WARM_UP_S]
        if len(warm) < 10:
            return
        grown_kb = warm[-1][1] - min(kb for _, kb in warm[:10])
        if grown_kb > GROWTH_KB_MAX:
            self._add_finding(f"memory grew by {grown_kb >> 10} MiB after the warm-up")
        late = [(at, kb) for at, kb in warm if at >= warm[-1][0] - SLOPE_S]
        if warm[-1][0] - warm[0][0] >= SLOPE_S and (slope := slope_per_minute(late)) > SLOPE_KB_PER_MINUTE_MAX:
            self._add_finding(f"memory grows by {slope / 1024:.1f} MiB a minute")

    def _add_finding(self, text: str) -> None:
        if text not in self.findings:
            self.findings.append(text)


def slope_per_minute(points: list[tuple[float, int]]) -> float:
    """Slope of the least-squares line."""
    count = len(points)
    mean_at, mean_kb = sum(at for at, _ in points) / count, sum(kb for _, kb in points) / count
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    return 60 * sum((at - mean_at) * (kb - mean_kb) for at, kb in points) / spread if spread else 0.0
