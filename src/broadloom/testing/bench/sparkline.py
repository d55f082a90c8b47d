"""A histogram in one line: how often which time was seen. Times grow from bar to bar by the same factor."""

from broadloom.testing.bench.histogram import LatencyHistogram

_BARS = "▁▂▃▄▅▆▇█"
_STEPS_SHIFT = 3
"""The histogram has 32 steps to each power of two; eight of them make a bar, or sixteen if there would be too many."""
WIDTH_MAX = 32


def sparkline(histogram: LatencyHistogram) -> str:
    """`0.2 ms ▁▃█▅▂▁ 6.1 ms`; empty if nothing was counted."""
    counts = {int(step): count for step, count in histogram.as_dict().items() if step != "max_ns"}
    if not counts:
        return ""
    shift = _STEPS_SHIFT
    while (max(counts) >> shift) - (min(counts) >> shift) >= WIDTH_MAX:
        shift += 1
    bars: dict[int, int] = {}
    for step, count in counts.items():
        bars[step >> shift] = bars.get(step >> shift, 0) + count
    first, largest = min(bars), max(bars.values())
    line = "".join(_bar(bars.get(bar, 0), largest) for bar in range(first, max(bars) + 1))
    return f"{_lower_ns(first << shift) / 1e6:.2g} ms {line} {histogram.max_ns / 1e6:.2g} ms"


def _bar(count: int, largest: int) -> str:
    """Whatever was seen at all can be seen."""
    return _BARS[min(len(_BARS) - 1, count * len(_BARS) // largest)] if count else " "


def _lower_ns(step: int) -> int:
    """The shortest time that belongs to a step. (Times of a few nanoseconds do not occur.)"""
    bits, fraction = step >> 5, step & 31
    return 32 + fraction << max(0, bits - 6)
