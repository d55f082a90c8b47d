"""`Pacer`: how an author keeps to its quota. Token buckets for messages, bytes and direct requests; a message waits
until there are enough tokens for it, so an honest member never exceeds what others enforce (`quotas.py`)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.protocol.owner.card import Quota

if TYPE_CHECKING:
    from broadloom.protocol.runtime import Runtime, Timer

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


class RequestPacer:
    """The same for direct requests, those of layers too. `on_due` sends what waits."""

    def __init__(self, per_s: float, burst_s: float, runtime: "Runtime", on_due: Callable[[], None]) -> None:
        self._runtime = runtime
        self._bucket = _Bucket(per_s, burst_s, runtime.now())
        self._on_due = on_due
        self._timer: Timer | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether `on_due` is still to be called."""
        return self._timer is not None

    def take(self) -> bool:
        """Whether a request can be sent now. If not, `on_due` is called when one can; no other overtakes it."""
        if self._timer is not None:
            return False
        delay_s = self._bucket.delay_s(1, self._runtime.now())
        if delay_s > 0:
            self._timer = self._runtime.call_later(delay_s, self._on_timer)
            return False
        self._bucket.take(1)
        return True

    def _on_timer(self) -> None:
        self._timer = None
        self._on_due()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _bucket(per_s: float | None, burst_s: float, now: float) -> _Bucket | None:
    return _Bucket(per_s, burst_s, now) if per_s is not None else None
