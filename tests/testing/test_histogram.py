"""The latency histogram: nearly exact quantiles, merging, rendering."""

from hypothesis import example, given
from hypothesis import strategies as st

from broadloom.testing.histogram import LatencyHistogram

TIMES = st.lists(st.integers(0, 10**12), min_size=1, max_size=200)


@given(TIMES, st.sampled_from([0.5, 0.9, 0.99, 1.0]))
@example([4, 7], 0.5)
@example([33, 63], 0.5)
def test_quantiles_are_within_four_percent(times, fraction):
    histogram = LatencyHistogram()
    for time in times:
        histogram.add(time)
    exact = sorted(times)[max(0, -int(-fraction * len(times) // 1) - 1)]
    estimated = histogram.quantile_ms(fraction) * 1e6
    assert exact - 1 <= estimated <= exact * 1.04 + 2


@given(TIMES, TIMES)
def test_merge_adds_counts(one, other):
    both, first, second = LatencyHistogram(), LatencyHistogram(), LatencyHistogram()
    for time in one:
        both.add(time)
        first.add(time)
    for time in other:
        both.add(time)
        second.add(time)
    first.merge(second.as_dict())
    assert first.as_dict() == both.as_dict()
    assert first.total == len(one) + len(other)


def test_empty_histogram_has_zero_quantiles():
    assert LatencyHistogram().quantile_ms(0.5) == 0.0


def test_sparkline_renders_a_histogram_in_one_line():
    histogram = LatencyHistogram()
    assert histogram.sparkline() == ""
    for time_ns, count in ((1_000_000, 1), (1_100_000, 9), (4_000_000, 3)):
        for _ in range(count):
            histogram.add(time_ns)
    line = histogram.sparkline()
    assert line.startswith("0.92 ms ▁█")
    assert line.endswith("▃ 4 ms")
    histogram.add(10_000)
    histogram.add(60_000_000_000)
    assert len(histogram.sparkline()) < 50
