"""Virtual time: what shall happen when, and nothing in between."""

import heapq
from collections.abc import Callable
from typing import Any

_Entry = tuple[float, int, Callable[..., None], tuple[Any, ...]]


class Clock:
    """Events in order of their time; those of the same time in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[_Entry] = []
        self._count = 0

    def at(self, time: float, act: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heapq.heappush(self._planned, (time, self._count, act, args))

    def run_until(self, time: float) -> int:
        """Let everything happen up to `time`; returns the number of events."""
        planned, pop = self._planned, heapq.heappop
        events = 0
        while planned and planned[0][0] <= time:
            self.now, _, act, args = pop(planned)
            act(*args)
            events += 1
        self.now = time
        return events
