"""Virtual time: an event queue without waiting."""

import heapq
from collections.abc import Callable
from typing import Any

_ScheduledCall = tuple[float, int, Callable[..., None], tuple[Any, ...]]


class VirtualClock:
    """Runs calls in order of time; calls at the same time in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[_ScheduledCall] = []
        self._count = 0

    def call_at(self, time: float, callback: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heapq.heappush(self._queue, (time, self._count, callback, args))

    def run_until(self, time: float) -> int:
        """Run all calls due up to `time`; return their number."""
        queue, pop = self._queue, heapq.heappop
        events = 0
        while queue and queue[0][0] <= time:
            self.now, _, callback, args = pop(queue)
            callback(*args)
            events += 1
        self.now = time
        return events
