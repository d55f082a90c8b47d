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
from contextlib import suppress
from typing import TYPE_CHECKING

from weft.net.pace import Pace

if TYPE_CHECKING:
    from weft.net.limits import Limits
    from weft.net.line import TcpLine
    from weft.net.node import Node

DRAIN_LOOK_S = 0.05
"""So often somebody that waits looks whether it still has to."""
AHEAD_LOOK_S = 0.005
_TCP_NOTSENT_LOWAT = 25
_TCP_WINDOW_CLAMP = 10


def keep_kernel_queues_short(connection: "socket.socket | None", limits: "Limits") -> None:
    """Else the kernel takes megabytes for a neighbour that does not read, and everything waits behind them."""
    if connection is not None and sys.platform == "linux":
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, limits.unsent_bytes)
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_WINDOW_CLAMP, limits.window_bytes)


def unread_bytes(connection: "socket.socket | None") -> int:
    """What the kernel holds for us to read."""
    if connection is None:
        return 0
    count = array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(connection.fileno(), termios.FIONREAD, count)
    return count[0]


class Flow:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._limits = node.limits
        self._congested: dict[TcpLine, float] = {}
        """Lines that are full, and since when."""
        self._relieved = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self.pace = Pace(node.now)

    def congested(self, line: "TcpLine") -> None:
        line.is_congested = True
        self._congested[line] = self._node.now()
        if self._timer is None:
            self._timer = self._node.after(self._limits.stall_s, self._look_at_stalled)

    def relieved(self, line: "TcpLine") -> None:
        line.is_congested = False
        self._congested.pop(line, None)
        self._relieved.set()

    def _look_at_stalled(self) -> None:
        """A neighbour that is behind and takes nothing at all is as good as dead, however alive it sounds."""
        self._timer = None
        stalled_before = self._node.now() - self._limits.stall_s
        for line, since in list(self._congested.items()):
            if max(since, line.taken_at) < stalled_before:
                line.give_up()
        if self._congested and not self._node.is_closing:
            self._timer = self._node.after(self._limits.stall_s / 4, self._look_at_stalled)

    # -- our own broadcasts

    @property
    def must_wait(self) -> bool:
        """Whether an author should wait: a neighbour is behind that we have patience with, or most of them are; or we
        are behind ourselves."""
        return self._node.peer.stream.progress.is_ahead or self.pace.is_spent or self._links_are_behind

    @property
    def _links_are_behind(self) -> bool:
        if not self._congested:
            return False
        links = len(self._node.peer.links)
        if len(self._congested) >= (links if links <= 2 else (links + 1) // 2):
            return True
        now = self._node.now()
        moved_after = now - self._limits.standstill_s
        return any(line.taken_at > moved_after and self._patience_s(line, now) > 0 for line in self._congested)

    def _patience_s(self, line: "TcpLine", now: float) -> float:
        left_s, at = line.patience
        return min(self._limits.patience_s, left_s + self._limits.patience_share * (now - at))

    async def drained(self) -> None:
        """Wait until the links have taken what was sent, and it is our turn again."""
        while self.pace.is_spent and self._node.peer.is_present:  # noqa: ASYNC110 (time itself is waited for)
            await asyncio.sleep(self.pace.pause_s)
        progress = self._node.peer.stream.progress
        while progress.is_ahead and self._node.peer.is_present:
            await asyncio.sleep(AHEAD_LOOK_S)
            progress.look_again()
        while self._links_are_behind and self._node.peer.is_present:
            waited_for, began = list(self._congested), self._node.now()
            self._relieved.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_LOOK_S):
                    await self._relieved.wait()
            now = self._node.now()
            for line in waited_for:
                line.patience = self._patience_s(line, now) - (now - began), now

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
