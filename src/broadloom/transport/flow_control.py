"""Flow control: when `broadcast` waits, and for which neighbors.

An author waits if it outruns its links, if it outruns the fabric (aggregated acknowledgements, `broadcast/acks.py`) or
if it does not keep up with reading (`AdaptiveRateLimiter`). One slow neighbor must not hold up the rest: each has a
slow-peer budget, after which `broadcast` no longer waits for it, and a stalled one is dropped.
"""

import asyncio
import fcntl
import socket
import sys
import termios
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from broadloom.protocol.requests.direct_connection import DirectConnection

if TYPE_CHECKING:
    from broadloom.transport.connection import TcpConnection
    from broadloom.transport.node import TcpNode


UNLIMITED = 1e9
"""Bytes per second that mean no limit."""
RATE_MIN = 256 << 10
"""Bytes per second that every peer may send, however overloaded the channel is."""
LAG_TOLERANCE_S = 0.12
"""The rate decreases only after this much continuous lag: a burst is read soon."""
LAG_RESET_S = 0.1
"""A lag is over if it was not observed for this time."""
DECREASE_INTERVAL_S = 0.1
"""Minimum time between two decreases: the effect of one takes a moment."""
DOUBLING_S = 0.5
BURST_S = 0.02
"""Depth of the token bucket, as a time."""
PAUSE_S_MAX = 0.05
MEASUREMENT_S = 0.05
"""Window for measuring the current send rate."""


class AdaptiveRateLimiter:
    """Limits the send rate of a peer that does not keep up with reading.

    Such a peer is part of an overloaded channel: it halves its own rate, and raises it again while there is no lag, so
    that messages do not pile up in its queues. The increase is exponential, not additive as in textbook AIMD: peers
    must get from an overload back to no limit within seconds. Rates do not become equal: a peer that reads without lag
    keeps its rate, while the others make room for it.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._bytes_per_s = UNLIMITED
        self._credit = 0.0
        self._refilled_at = 0.0
        self._decreased_at = 0.0
        self._lag_at = self._lag_since = 0.0
        self._sent_bytes = 0
        """Since `_measured_since`."""
        self._measured_since = now()
        self._sent_per_s = 0.0
        """In the window before that."""

    def on_lag(self) -> None:
        """More data waits in the kernel than was just read."""
        now = self._now()
        if now - self._lag_at > LAG_RESET_S:
            self._lag_since = now
        self._lag_at = now
        if now - self._lag_since < LAG_TOLERANCE_S or now - self._decreased_at < DECREASE_INTERVAL_S:
            return
        self._decreased_at = now
        self._refill(now)
        recent_per_s = self._sent_bytes / max(now - self._measured_since, MEASUREMENT_S)
        sent_per_s = max(recent_per_s, self._sent_per_s if now - self._measured_since < DECREASE_INTERVAL_S else 0.0)
        self._bytes_per_s = max(RATE_MIN, min(self._bytes_per_s, sent_per_s) / 2)
        self._credit = min(self._credit, self._bytes_per_s * BURST_S)

    def consume(self, size: int) -> None:
        self._sent_bytes += size
        now = self._now()
        if self._bytes_per_s < UNLIMITED:
            self._refill(now)
            self._credit -= size
        passed_s = now - self._measured_since
        if passed_s >= MEASUREMENT_S:
            self._sent_per_s, self._sent_bytes, self._measured_since = self._sent_bytes / passed_s, 0, now

    @property
    def is_exhausted(self) -> bool:
        if self._bytes_per_s >= UNLIMITED:
            return False
        self._refill(self._now())
        return self._credit <= 0

    @property
    def pause_s(self) -> float:
        """When to check again."""
        wanted = self._bytes_per_s * BURST_S / 2
        return min(PAUSE_S_MAX, max(0.001, (wanted - self._credit) / self._bytes_per_s))

    def _refill(self, now: float) -> None:
        passed_s, self._refilled_at = now - self._refilled_at, now
        self._bytes_per_s = min(UNLIMITED, self._bytes_per_s * 2 ** min(passed_s / DOUBLING_S, 30))
        self._credit = min(self._credit + passed_s * self._bytes_per_s, self._bytes_per_s * BURST_S)


DRAIN_POLL_S = 0.05
"""How often a waiting author checks the links again."""
WINDOW_POLL_S = 0.005
_TCP_NOTSENT_LOWAT = 25
_TCP_WINDOW_CLAMP = 10


def limit_kernel_buffers(
    connection: "socket.socket | None", notsent_lowat_bytes: int, socket_buffer_bytes: int
) -> None:
    """By default the kernel buffers megabytes for a neighbor that does not read, and everything else queues behind."""
    if connection is not None and sys.platform == "linux":
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, notsent_lowat_bytes)
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_WINDOW_CLAMP, socket_buffer_bytes)


def unread_bytes(connection: "socket.socket | None") -> int:
    """Bytes in the receive buffer of the kernel."""
    if connection is None:
        return 0
    count = array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(connection.fileno(), termios.FIONREAD, count)
    return count[0]


class FlowControl:
    def __init__(self, node: "TcpNode") -> None:
        self._node = node
        self._limits = node.limits
        self._congested: dict[TcpConnection, float] = {}
        """Congested connections, and since when."""
        self._writable = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self.rate_limiter = AdaptiveRateLimiter(node.now)

    def on_congested(self, connection: "TcpConnection") -> None:
        connection.is_above_high_water = True
        self._congested[connection] = self._node.now()
        if self._timer is None:
            self._timer = self._node.call_later(self._limits.stall_timeout_s, self._check_stalled)

    def on_writable(self, connection: "TcpConnection") -> None:
        connection.is_above_high_water = False
        self._congested.pop(connection, None)
        self._writable.set()

    def _check_stalled(self) -> None:
        """Drop congested neighbors that read nothing, even if they still send."""
        self._timer = None
        stalled_before = self._node.now() - self._limits.stall_timeout_s
        for connection, since in list(self._congested.items()):
            if max(since, connection.last_progress_at) < stalled_before:
                connection.drop_slow()
        if self._congested and not self._node.is_closing:
            self._timer = self._node.call_later(self._limits.stall_timeout_s / 4, self._check_stalled)

    # -- our own broadcasts

    @property
    def must_wait(self) -> bool:
        """Whether an author must wait: for acknowledgements, for the rate limiter, or for congested links."""
        return (
            self._node.peer.broadcaster.acks.is_window_full
            or self.rate_limiter.is_exhausted
            or self._links_are_congested
        )

    @property
    def _links_are_congested(self) -> bool:
        congested = self._congested_links() if self._congested else []
        if not congested:
            return False
        links = len(self._node.peer.links)
        if len(congested) >= (links if links <= 2 else (links + 1) // 2):
            return True
        now = self._node.now()
        progress_after = now - self._limits.stall_grace_s
        return any(
            each.last_progress_at > progress_after and self._slow_peer_budget_s(each, now) > 0 for each in congested
        )

    def _congested_links(self) -> "list[TcpConnection]":
        """Without direct connections, which carry no broadcasts."""
        return [each for each in self._congested if not isinstance(each.handler, DirectConnection)]

    @property
    def read_at(self) -> float:
        """When one of the congested neighbors last read something."""
        return max((each.last_progress_at for each in self._congested_links()), default=0.0)

    def _slow_peer_budget_s(self, connection: "TcpConnection", now: float) -> float:
        left_s, at = connection.slow_peer_budget
        return min(self._limits.slow_peer_budget_s, left_s + self._limits.slow_peer_refill_ratio * (now - at))

    async def drain(self) -> None:
        """Wait until `must_wait` is no longer true."""
        while self.rate_limiter.is_exhausted and self._node.peer.is_present:  # noqa: ASYNC110 (waits for time to pass)
            await asyncio.sleep(self.rate_limiter.pause_s)
        acks = self._node.peer.broadcaster.acks
        while acks.is_window_full and self._node.peer.is_present:
            await asyncio.sleep(WINDOW_POLL_S)
            acks.recheck()
        while self._links_are_congested and self._node.peer.is_present:
            waited_for, began = self._congested_links(), self._node.now()
            self._writable.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_POLL_S):
                    await self._writable.wait()
            now = self._node.now()
            for connection in waited_for:  # for several tasks that wait at the same time, the time counts once
                charged_s = now - max(began, connection.slow_peer_budget[1])
                connection.slow_peer_budget = self._slow_peer_budget_s(connection, now) - charged_s, now

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
