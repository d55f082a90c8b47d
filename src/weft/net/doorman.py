"""Who may call: limits on callers that have not shown anything yet, and on calls from one address.

Everything here happens before the fabric hears of a call. Whoever is turned away is counted.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.net.limits import Limits
    from weft.net.line import TcpLine

ADDRESSES_MAX = 4096
"""Addresses whose calls are counted; beyond, the one that called longest ago is forgotten."""


class Doorman:
    def __init__(self, limits: "Limits", now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._pending: dict[TcpLine, None] = {}
        self._left: dict[str, tuple[float, float]] = {}
        """Address -> calls it may still make, and when that was counted."""
        self.turned_away = 0
        self.hurried = 0
        """Handshakes broken off to make room for others."""

    def admits(self, line: "TcpLine") -> bool:
        if not self._may_call(line.remote_host):
            self.turned_away += 1
            return False
        if len(self._pending) >= self._limits.handshakes_max:
            self.hurried += 1
            oldest = next(iter(self._pending))
            del self._pending[oldest]
            oldest.abort()
        self._pending[line] = None
        return True

    def done(self, line: "TcpLine") -> None:
        """It has shown its certificate, or is gone."""
        self._pending.pop(line, None)

    @property
    def pending(self) -> int:
        return len(self._pending)

    def hang_up(self) -> None:
        """Nobody is let in any more."""
        for line in list(self._pending):
            line.abort()
        self._pending.clear()

    def _may_call(self, host: str) -> bool:
        now = self._now()
        left, counted_at = self._left.pop(host, (float(self._limits.calls_burst), now))
        left = min(self._limits.calls_burst, left + (now - counted_at) * self._limits.calls_per_s)
        self._left[host] = left - 1 if left >= 1 else left, now
        if len(self._left) > ADDRESSES_MAX:
            del self._left[next(iter(self._left))]
        return left >= 1
