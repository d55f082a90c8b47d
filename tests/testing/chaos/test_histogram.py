"""Times in few counters, nearly exact."""

from hypothesis import example, given
from hypothesis import strategies as st

from broadloom.testing.bench.histogram import LatencyHistogram

TIMES = st.lists(st.integers(0, 10**12), min_size=1, max_size=200)


@given(TIMES, st.sampled_from([0.5, 0.9, 0.99, 1.0]))
@example([4, 7], 0.5)
@example([33, 63], 0.5)
def test_quantiles_are_close(times, share):
    histogram = LatencyHistogram()
    for time in times:
        histogram.add(time)
    exact = sorted(times)[max(0, -int(-share * len(times) // 1) - 1)]
    told = histogram.quantile_ms(share) * 1e6
    assert exact - 1 <= told <= exact * 1.04 + 2


@given(TIMES, TIMES)
def test_two_are_added_up(one, other):
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


def test_none_at_all():
    assert LatencyHistogram().quantile_ms(0.5) == 0.0
