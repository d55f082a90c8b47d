"""Metrics of a cluster: one sample per second, from the counts that workers report."""

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from broadloom.testing.histogram import LatencyHistogram

SAMPLES_MAX = 3600
"""One hour."""
LATENCY_WINDOW_S = 5
"""Window of the latency percentiles: on a quiet channel a single second has few messages."""


@dataclass(frozen=True, slots=True)
class MetricsSample:
    at_s: float
    """End of the second, Unix time."""
    peers: int
    sent_per_s: float
    delivered_per_s: float
    latency_p50_ms: float
    """From sending to delivery, for ticks in the last five seconds; 0 if there were none."""
    latency_p99_ms: float
    hops_p50: float
    """Links traveled by the messages delivered in this second; 0 if there were none."""
    hops_max: int
    redundancy: float
    """Copies received per message: 1 is optimal, a flood over four links has 3; 0 if no message was received."""
    slow_peers: int
    """Peers that read more slowly than their neighbors send."""
    missed: int
    """Messages reported as missed in this second."""
    links_made: int
    """Links that came up in this second."""
    links_lost: int


class MetricsSampler:
    """`on_counts` adds up the reports of workers; `tick`, called once per second, makes a sample of them."""

    def __init__(self) -> None:
        self.samples: deque[MetricsSample] = deque(maxlen=SAMPLES_MAX)
        self.sent = self.delivered = self.received = self.duplicates = self.missed = 0
        """Totals since the start."""
        self._totals_before = (0, 0, 0, 0, 0)
        self._hops: dict[int, int] = {}
        self._latency = LatencyHistogram()
        self._latencies: deque[LatencyHistogram] = deque(maxlen=LATENCY_WINDOW_S)
        self.latency_all = LatencyHistogram()
        self.hops_max = 0
        self._slow: dict[int, list[int]] = {}
        self._link_ends_made = self._link_ends_lost = 0
        self._ticked_s = time.monotonic()

    def on_counts(self, worker: int, counts: dict[str, Any]) -> None:
        for name in ("sent", "delivered", "received", "duplicates", "missed"):
            setattr(self, name, getattr(self, name) + counts[name])
        for hops, count in counts["hops"]:
            self._hops[hops] = self._hops.get(hops, 0) + count
            self.hops_max = max(self.hops_max, hops)
        if counts["latency"]:
            self._latency.merge(counts["latency"])
            self.latency_all.merge(counts["latency"])
        self._link_ends_made += counts["links_made"]
        self._link_ends_lost += counts["links_lost"]
        self._slow[worker] = counts["slow"]

    def forget_worker(self, worker: int) -> None:
        self._slow.pop(worker, None)

    def tick(self, peers: int) -> MetricsSample:
        now_s = time.monotonic()
        interval_s = max(0.001, now_s - self._ticked_s)
        self._ticked_s = now_s
        totals = (self.sent, self.delivered, self.received, self.duplicates, self.missed)
        sent, delivered, received, duplicates, missed = (
            now - was for now, was in zip(totals, self._totals_before, strict=True)
        )
        self._totals_before = totals
        self._latencies.append(self._latency)
        self._latency = LatencyHistogram()
        recent = LatencyHistogram()
        for each in self._latencies:
            recent.merge(each.as_dict())
        sample = MetricsSample(
            time.time(),
            peers,
            sent / interval_s,
            delivered / interval_s,
            recent.quantile_ms(0.5),
            recent.quantile_ms(0.99),
            _median(self._hops),
            max(self._hops, default=0),
            (received + duplicates) / received if received else 0.0,
            len({peer for slow in self._slow.values() for peer in slow}),
            missed,
            # Both ends report a link, unless the other end crashed or is an external peer.
            (self._link_ends_made + 1) // 2,
            (self._link_ends_lost + 1) // 2,
        )
        self._hops = {}
        self._link_ends_made = self._link_ends_lost = 0
        self.samples.append(sample)
        return sample


def _median(counts: dict[int, int]) -> float:
    half, passed = sum(counts.values()) / 2, 0
    for value in sorted(counts):
        passed += counts[value]
        if passed >= half:
            return float(value)
    return 0.0
