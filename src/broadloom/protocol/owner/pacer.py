"""`Pacer`: how an author keeps to its quota. Token buckets for messages, bytes and direct requests; a message waits
until there are enough tokens for it, so an honest member never exceeds what others enforce (`quotas.py`)."""

from collections.abc import Callable

from broadloom.protocol.owner.card import Quota

ROUNDING_S = 1e-6
"""Shorter waits are rounding errors."""


class _Bucket:
    __slots__ = ("_at", "_burst", "_per_s", "_tokens")

    def __init__(self, per_s: float, burst_s: float, now: float) -> None:
        self._per_s = per_s
        self._burst = max(1.0, per_s * burst_s)
        self._tokens = self._burst
        self._at = now

    def delay_s(self, cost: float, now: float) -> float:
        """When there are enough tokens; infinite if there never are."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_s)
        self._at = now
        if cost > self._burst:
            return float("inf")
        delay_s = (cost - self._tokens) / self._per_s
        return delay_s if delay_s > ROUNDING_S else 0.0

    def take(self, cost: float) -> None:
        self._tokens -= cost


class Pacer:
    def __init__(self, quota: Quota, now: Callable[[], float]) -> None:
        self.quota = quota
        self._now = now
        at = now()
        self._messages = _bucket(quota.messages_per_s, quota.burst_s, at)
        self._bytes = _bucket(quota.bytes_per_s, quota.burst_s, at)
        self._requests = _bucket(quota.requests_per_s, quota.burst_s, at)

    @property
    def message_bytes_max(self) -> float:
        """The largest message, or fragment of one, that there are ever enough tokens for."""
        limits = [float("inf")]
        if self.quota.message_bytes_max is not None:
            limits.append(self.quota.message_bytes_max)
        if self.quota.bytes_per_s is not None:
            limits.append(self.quota.bytes_per_s * self.quota.burst_s)
        return min(limits)

    def delay_s(self, size: int) -> float:
        """How long a message of this size has to wait; 0: send it now, and call `take`."""
        now = self._now()
        delay_s = self._messages.delay_s(1, now) if self._messages is not None else 0.0
        return max(delay_s, self._bytes.delay_s(size, now)) if self._bytes is not None else delay_s

    def take(self, size: int) -> None:
        if self._messages is not None:
            self._messages.take(1)
        if self._bytes is not None:
            self._bytes.take(size)

    def request_delay_s(self) -> float:
        return self._requests.delay_s(1, self._now()) if self._requests is not None else 0.0

    def take_request(self) -> None:
        if self._requests is not None:
            self._requests.take(1)


def _bucket(per_s: float | None, burst_s: float, now: float) -> _Bucket | None:
    return _Bucket(per_s, burst_s, now) if per_s is not None else None
