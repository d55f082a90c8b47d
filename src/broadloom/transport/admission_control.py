"""Admission control: limits on unauthenticated connections and on the connection rate per address (token bucket).

It acts before the protocol sees a connection. Denied connections are counted.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broadloom.transport.connection import TcpConnection
    from broadloom.transport.limits import Limits

ADDRESSES_MAX = 4096
"""Addresses with a token bucket; beyond that, the least recently used one is forgotten."""


class AdmissionControl:
    def __init__(self, limits: "Limits", now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._pending: dict[TcpConnection, None] = {}
        self._tokens: dict[str, tuple[float, float]] = {}
        """Address -> remaining tokens, and the time of that count."""
        self.connections_denied = 0
        self.handshakes_evicted = 0
        """Pending handshakes aborted in favor of newer ones."""

    def admit(self, connection: "TcpConnection") -> bool:
        if not self._take_token(connection.remote_host):
            self.connections_denied += 1
            return False
        if len(self._pending) >= self._limits.pending_handshakes_max:
            self.handshakes_evicted += 1
            oldest = next(iter(self._pending))
            del self._pending[oldest]
            oldest.abort()
        self._pending[connection] = None
        return True

    def remove_pending(self, connection: "TcpConnection") -> None:
        """The connection is authenticated or closed."""
        self._pending.pop(connection, None)

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    def abort_pending(self) -> None:
        for connection in list(self._pending):
            connection.abort()
        self._pending.clear()

    def _take_token(self, host: str) -> bool:
        now = self._now()
        tokens, counted_at = self._tokens.pop(host, (float(self._limits.connections_burst), now))
        tokens = min(self._limits.connections_burst, tokens + (now - counted_at) * self._limits.connections_per_s)
        self._tokens[host] = tokens - 1 if tokens >= 1 else tokens, now
        if len(self._tokens) > ADDRESSES_MAX:
            del self._tokens[next(iter(self._tokens))]
        return tokens >= 1
