"""Virtual time: what shall happen when, and nothing in between."""

import heapq
from collections.abc import Callable
from typing import Any

_ScheduledCall = tuple[float, int, Callable[..., None], tuple[Any, ...]]


class VirtualClock:
    """Events in order of their time; those of the same time in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[_ScheduledCall] = []
        self._count = 0

    def call_at(self, time: float, callback: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heapq.heappush(self._queue, (time, self._count, callback, args))

    def run_until(self, time: float) -> int:
        """Let everything happen up to `time`; returns the number of events."""
        planned, pop = self._queue, heapq.heappop
        events = 0
        while planned and planned[0][0] <= time:
            self.now, _, act, args = pop(planned)
            act(*args)
            events += 1
        self.now = time
        return events
