"""`AdaptiveRateLimiter`: the send rate of an overloaded peer."""

from broadloom.transport.flow_control import BURST_S, LAG_TOLERANCE_S, RATE_MIN, UNLIMITED, AdaptiveRateLimiter


class FakeClock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def send_for(
    limiter: AdaptiveRateLimiter, clock: FakeClock, seconds: float, *, bytes_per_s: float, size: int = 1000
) -> int:
    """Send at this rate, or as fast as allowed; returns the bytes sent."""
    sent, end = 0, clock.time + seconds
    while clock.time < end:
        if limiter.is_exhausted:
            clock.time += limiter.pause_s
        else:
            limiter.consume(size)
            sent += size
            clock.time += size / bytes_per_s
    return sent


def lag_for(limiter: AdaptiveRateLimiter, clock: FakeClock, seconds: float) -> None:
    end = clock.time + seconds
    while clock.time < end:
        limiter.on_lag()
        clock.time += 0.01


def test_rate_is_unlimited_without_lag() -> None:
    clock = FakeClock()
    limiter = AdaptiveRateLimiter(clock)
    assert send_for(limiter, clock, 1, bytes_per_s=10e6) >= 10e6


def test_short_lag_does_not_limit_rate() -> None:
    clock = FakeClock()
    limiter = AdaptiveRateLimiter(clock)
    send_for(limiter, clock, 1, bytes_per_s=10e6)
    lag_for(limiter, clock, LAG_TOLERANCE_S / 2)
    assert send_for(limiter, clock, 1, bytes_per_s=10e6) >= 10e6


def test_rate_halves_during_lag_and_recovers_after_it() -> None:
    clock = FakeClock()
    limiter = AdaptiveRateLimiter(clock)
    send_for(limiter, clock, 1, bytes_per_s=10e6)
    for _ in range(int(LAG_TOLERANCE_S / 0.01) + 2):
        limiter.on_lag()
        send_for(limiter, clock, 0.01, bytes_per_s=10e6)
    slow = send_for(limiter, clock, 0.2, bytes_per_s=10e6) / 0.2
    assert 3e6 < slow < 8e6
    send_for(limiter, clock, 3, bytes_per_s=10e6)
    assert send_for(limiter, clock, 1, bytes_per_s=10e6) > 9e6
    assert UNLIMITED > 10e6


def test_rate_never_falls_below_minimum() -> None:
    clock = FakeClock()
    limiter = AdaptiveRateLimiter(clock)
    send_for(limiter, clock, 1, bytes_per_s=10e6)
    sent, seconds = 0, 0.0
    for _ in range(50):
        lag_for(limiter, clock, 0.02)
        began = clock.time
        sent += send_for(limiter, clock, 0.08, bytes_per_s=10e6)
        seconds += clock.time - began
    assert sent / seconds > RATE_MIN / 2


def test_unused_rate_is_not_saved() -> None:
    clock = FakeClock()
    limiter = AdaptiveRateLimiter(clock)
    send_for(limiter, clock, 1, bytes_per_s=10e6)
    lag_for(limiter, clock, 1)
    clock.time += 0.5
    allowed = 0
    while not limiter.is_exhausted:
        limiter.consume(1000)
        allowed += 1000
    assert allowed <= 10e6 * BURST_S + 1000
