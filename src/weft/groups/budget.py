"""How much history may be sent on the channel: a bucket that fills with time, and that everybody's pages empty."""


class Budget:
    """May be overdrawn by one page; then it takes a while."""

    def __init__(self, bytes_per_s: float, burst_bytes: float, now: float) -> None:
        self._per_s = bytes_per_s
        self._burst = burst_bytes
        self._left = burst_bytes
        self._at = now

    def wait_s(self, now: float) -> float:
        """How long until there is something to spend; 0 if there is."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        return 0.0 if self._left > 0 else -self._left / self._per_s + 0.001

    def spend(self, size: int, now: float) -> None:
        self.wait_s(now)
        self._left = max(self._left - size, -4 * self._burst)
