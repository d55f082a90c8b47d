"""`Pacing`: deadlines and pauses that adapt to measured delays.

Where processes are short of CPU, an exchange can take longer than its deadline, and fixed deadlines make it worse: the
initiator gives up, the responder has counted the link already and loses it again, and both try once more, which costs
more handshakes and makes all others slower still. So the delays are measured (smoothed like the retransmission timer of
TCP, RFC 6298, but rising faster): how late our own timers are, and how long exchanges take. Beyond `NORMAL_DELAY_S` all
deadlines and pauses of membership grow in proportion, fewer peers are asked at a time, and no search is flooded.
"""

NORMAL_DELAY_S = 1.0
"""Exchanges may take this long without any effect: the deadlines are made for it."""
STRETCH_MAX = 8.0
SAMPLE_S_MAX = 20.0
"""Longer exchanges count like this."""
LATENESS_S_MAX = 5.0
"""One timer that is later than this shows a suspended machine or a stopped process, not load, and is ignored: such a
process should fill its slots at once. If it happens again and again, it is load."""
STOP_INTERVAL_TICKS = 20
"""A second one within this number of ticks is load."""
RISE, FALL = 0.5, 0.125
"""Weights of a sample above and below the estimate."""
TURNS_PER_EXCHANGE = 2
"""How often an exchange waits for an event loop, at least: once at each end."""
DECAY_PER_TICK = 0.95
"""An estimate without new samples halves in about 14 s."""
PAUSE_DELAYS = 2
"""A pause is at least this multiple of the delay, so that most attempts have ended before the next one."""


class Pacing:
    def __init__(self) -> None:
        self._exchange_s = 0.0
        self._lag_s = 0.0
        self._ticks_since_stop = STOP_INTERVAL_TICKS

    @property
    def delay_s(self) -> float:
        """How long an exchange takes at the moment."""
        return max(self._exchange_s, self._lag_s)

    @property
    def is_slow(self) -> bool:
        return self.delay_s > NORMAL_DELAY_S

    def stretched(self, seconds: float) -> float:
        """A deadline or pause, adapted to the delay."""
        delay_s = self.delay_s
        if delay_s <= NORMAL_DELAY_S:
            return seconds
        return max(seconds * min(delay_s / NORMAL_DELAY_S, STRETCH_MAX), PAUSE_DELAYS * delay_s)

    def on_exchange(self, duration_s: float) -> None:
        """A request was answered after this time. (The time before, to connect, may be that of a partition.)"""
        self._exchange_s = _smoothed(self._exchange_s, duration_s)

    def on_tick(self, lateness_s: float) -> None:
        """The periodic timer was this late: for this long, the process did not get the CPU."""
        self._exchange_s *= DECAY_PER_TICK
        self._ticks_since_stop += 1
        if lateness_s > LATENESS_S_MAX:
            may_be_stop, self._ticks_since_stop = self._ticks_since_stop > STOP_INTERVAL_TICKS, 0
            if may_be_stop:
                return
        self._lag_s = _smoothed(self._lag_s, TURNS_PER_EXCHANGE * lateness_s)


def _smoothed(estimate_s: float, sample_s: float) -> float:
    difference_s = min(sample_s, SAMPLE_S_MAX) - estimate_s
    return estimate_s + (RISE if difference_s > 0 else FALL) * difference_s
