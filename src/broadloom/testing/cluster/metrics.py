"""Figures of a lab, second by second, out of what its processes count."""

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from broadloom.testing.bench.histogram import LatencyHistogram

SAMPLES_MAX = 3600
"""An hour."""
LATENCY_WINDOW_S = 5
"""Percentiles of delays are over so many seconds: a single one has few messages on a quiet channel."""


@dataclass(frozen=True, slots=True)
class MetricsSample:
    """One second."""

    at_s: float
    """Its end, in Unix seconds."""
    peers: int
    sent_per_s: float
    delivered_per_s: float
    latency_p50_ms: float
    """From saying to delivery, of ticks, identifications and adverts in the last five seconds; 0 if there were none."""
    latency_p99_ms: float
    hops_p50: float
    """Links travelled by what was delivered in this second; 0 if nothing was."""
    hops_max: int
    redundancy: float
    """Copies that came for each that was new: 1 is the least, a flood over four links brings 3; 0 if none came."""
    slow_peers: int
    """Peers that do not read as fast as their neighbours send to them."""
    missed: int
    """Messages that peers were told they will not get, in this second."""
    links_made: int
    """Links that came up, in this second; each counts once."""
    links_lost: int


class MetricsSampler:
    """`counted` takes what processes tell; `tick`, once a second, makes a sample of it."""

    def __init__(self) -> None:
        self.samples: deque[MetricsSample] = deque(maxlen=SAMPLES_MAX)
        self.sent = self.delivered = self.received = self.duplicates = self.missed = 0
        """Since the beginning."""
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
            # Both ends tell of a link, so each is told twice, unless its other end is dead or a stranger's.
            (self._link_ends_made + 1) // 2,
            (self._link_ends_lost + 1) // 2,
        )
        self._hops = {}
        self._link_ends_made = self._link_ends_lost = 0
        self.samples.append(sample)
        return sample


def _median(counts: dict[int, int]) -> float:
    """The value that half of all do not exceed."""
    half, passed = sum(counts.values()) / 2, 0
    for value in sorted(counts):
        passed += counts[value]
        if passed >= half:
            return float(value)
    return 0.0
