"""`PageQueue`: history pages that wait to be verified, on a channel with tickets.

A signature takes some 0.1 ms to verify, and a page of a few kilobytes can contain hundreds of forged ones. So the
first forged post ends its page, and further pages of that peer are ignored for a while. Verifications have a rate
limit: pages beyond it wait, those of different peers in turn, so that a peer that sends many does not hold up the rest.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.groups.messages import HistoryPage
from broadloom.groups.runtime import DelayedCall
from broadloom.groups.settings import PENDING_MAX
from broadloom.groups.suppression import RecentDict, TokenBucket
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.groups.runtime import GroupRuntime

VERIFICATIONS_PER_S = 3_000
"""Posts of all pages: less than half of a processor..."""
VERIFICATIONS_BURST = 1_000
"""...and at once."""
FORGER_IGNORED_S = 60.0
"""Pages of a peer are ignored for this long after one with a forged post."""
PEER_BYTES_MAX = 2 << 20
"""Waiting pages of one peer: two turns. Further ones are dropped; the member that misses them requests them again."""
WAITING_BYTES_MAX = 16 << 20
"""Waiting pages of all peers."""


class PageQueue:
    def __init__(self, runtime: "GroupRuntime", handle: Callable[[PeerId, HistoryPage], None]) -> None:
        self._runtime = runtime
        self._handle = handle
        self._waiting: dict[PeerId, deque[tuple[HistoryPage, int]]] = {}
        """Pages and their sizes. The first peer is next."""
        self._waiting_bytes = 0
        self._timer = DelayedCall(runtime)
        self._budget = TokenBucket(VERIFICATIONS_PER_S, VERIFICATIONS_BURST, runtime.now())
        self._forgers: RecentDict[PeerId, float] = RecentDict(PENDING_MAX)
        """The time until which the pages of a peer are ignored."""

    def stop(self) -> None:
        self._timer.cancel()
        self._waiting.clear()
        self._waiting_bytes = 0

    def put(self, peer: PeerId, page: HistoryPage, size: int) -> None:
        """Handle a page, now or as soon as the rate limit allows."""
        if self.is_ignored(peer):
            return
        if not self._waiting and not self._budget.wait_s(self._runtime.now()):
            self._handle(peer, page)
            return
        pages = self._waiting.get(peer, ())
        if sum(each for _, each in pages) + size <= PEER_BYTES_MAX and self._waiting_bytes + size <= WAITING_BYTES_MAX:
            self._waiting.setdefault(peer, deque()).append((page, size))
            self._waiting_bytes += size
            self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._timer.is_pending:
            self._timer.start(self._budget.wait_s(self._runtime.now()), self._handle_next)

    def _handle_next(self) -> None:
        peer = next(iter(self._waiting))
        pages = self._waiting.pop(peer)
        page, size = pages.popleft()
        self._waiting_bytes -= size
        if pages:
            self._waiting[peer] = pages
        if not self.is_ignored(peer):
            self._handle(peer, page)
        self._schedule()

    def is_ignored(self, peer: PeerId) -> bool:
        return self._runtime.now() < self._forgers.get(peer, 0.0)

    @property
    def is_exhausted(self) -> bool:
        """Whether there were too many verifications in the last second."""
        return self._budget.wait_s(self._runtime.now()) > 0

    def on_verification(self) -> None:
        self._budget.consume(1, self._runtime.now())

    def on_forged(self, peer: PeerId) -> None:
        self._forgers.put(peer, self._runtime.now() + FORGER_IGNORED_S)
