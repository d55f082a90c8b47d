"""Who is behind, who is waited for, and who is given up: the lines of one peer whose other ends read slowly.

An author that outruns its links waits, and so does one that outruns the fabric (`fabric/progress.py`) or that does not
keep up with reading (`pace.py`). But one neighbour that reads slowly, or not at all, must not hold up the rest: it has
a little patience of ours to use up, and is not waited for when that is gone.
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

if TYPE_CHECKING:
    from broadloom.transport.connection import TcpConnection
    from broadloom.transport.node import TcpNode


# How fast we may speak: as fast as we like, until we do not keep up with what the others say.
#
# When more waits to be read than we can read, everyone speaks too much, and we are one of them: we halve our pace, and
# quicken it again as long as all is well. So the peers of an overloaded channel find a common pace by themselves, and
# messages do not pile up in their queues.


UNLIMITED = 1e9
"""Bytes a second: no limit at all."""
RATE_MIN = 256 << 10
"""Bytes a second that everyone may say, however loud the others are."""
LAG_TOLERANCE_S = 0.12
"""A burst is soon read; only one who has been behind for so long slows down."""
LAG_RESET_S = 0.1
"""One who has not been behind for so long is not behind any more."""
DECREASE_INTERVAL_S = 0.1
"""So often the pace is halved at most: a cut takes a moment to be felt."""
DOUBLING_S = 0.5
BURST_S = 0.02
"""What was not said within this time is not saved for later."""
PAUSE_S_MAX = 0.05
MEASUREMENT_S = 0.05
"""How fast we speak is measured over this time."""


class AimdRateLimiter:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._bytes_per_s = UNLIMITED
        self._credit = 0.0
        self._refilled_at = 0.0
        self._decreased_at = 0.0
        self._lag_at = self._lag_since = 0.0
        self._sent_bytes = 0
        """Bytes since `_said_since`."""
        self._measured_since = now()
        self._sent_per_s = 0.0
        """In the time before that."""

    def on_lag(self) -> None:
        """We do not keep up with reading."""
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
        """So much was said."""
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
        """Whether we have to wait."""
        if self._bytes_per_s >= UNLIMITED:
            return False
        self._refill(self._now())
        return self._credit <= 0

    @property
    def pause_s(self) -> float:
        """After so long there may be room again."""
        wanted = self._bytes_per_s * BURST_S / 2
        return min(PAUSE_S_MAX, max(0.001, (wanted - self._credit) / self._bytes_per_s))

    def _refill(self, now: float) -> None:
        passed_s, self._refilled_at = now - self._refilled_at, now
        self._bytes_per_s = min(UNLIMITED, self._bytes_per_s * 2 ** min(passed_s / DOUBLING_S, 30))
        self._credit = min(self._credit + passed_s * self._bytes_per_s, self._bytes_per_s * BURST_S)


DRAIN_POLL_S = 0.05
"""So often somebody that waits looks whether it still has to."""
WINDOW_POLL_S = 0.005
_TCP_NOTSENT_LOWAT = 25
_TCP_WINDOW_CLAMP = 10


def limit_kernel_buffers(
    connection: "socket.socket | None", notsent_lowat_bytes: int, socket_buffer_bytes: int
) -> None:
    """Else the kernel takes megabytes for a neighbour that does not read, and everything waits behind them."""
    if connection is not None and sys.platform == "linux":
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, notsent_lowat_bytes)
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_WINDOW_CLAMP, socket_buffer_bytes)


def unread_bytes(connection: "socket.socket | None") -> int:
    """What the kernel holds for us to read."""
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
        """Lines that are full, and since when."""
        self._writable = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self.rate_limiter = AimdRateLimiter(node.now)

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
        """A neighbour that is behind and takes nothing at all is as good as dead, however alive it sounds."""
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
        """Whether an author should wait: a neighbour is behind that we have patience with, or most of them are; or we
        are behind ourselves."""
        return (
            self._node.peer.broadcaster.acks.is_window_full
            or self.rate_limiter.is_exhausted
            or self._links_are_congested
        )

    @property
    def _links_are_congested(self) -> bool:
        if not self._congested:
            return False
        links = len(self._node.peer.links)
        if len(self._congested) >= (links if links <= 2 else (links + 1) // 2):
            return True
        now = self._node.now()
        moved_after = now - self._limits.stall_grace_s
        return any(
            line.last_progress_at > moved_after and self._slow_peer_budget_s(line, now) > 0 for line in self._congested
        )

    def _slow_peer_budget_s(self, connection: "TcpConnection", now: float) -> float:
        left_s, at = connection.slow_peer_budget
        return min(self._limits.slow_peer_budget_s, left_s + self._limits.slow_peer_refill_ratio * (now - at))

    async def drain(self) -> None:
        """Wait until the links have taken what was sent, and it is our turn again."""
        while self.rate_limiter.is_exhausted and self._node.peer.is_present:  # noqa: ASYNC110 (time itself is waited for)
            await asyncio.sleep(self.rate_limiter.pause_s)
        progress = self._node.peer.broadcaster.acks
        while progress.is_window_full and self._node.peer.is_present:
            await asyncio.sleep(WINDOW_POLL_S)
            progress.recheck()
        while self._links_are_congested and self._node.peer.is_present:
            waited_for, began = list(self._congested), self._node.now()
            self._writable.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_POLL_S):
                    await self._writable.wait()
            now = self._node.now()
            for connection in waited_for:
                connection.slow_peer_budget = self._slow_peer_budget_s(connection, now) - (now - began), now

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
