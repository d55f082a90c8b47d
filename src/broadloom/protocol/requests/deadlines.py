"""`Deadlines`: the deadlines of many requests, with one timer.

Nearly all requests are answered in time, so what counts is the cost of one that is. A timer of its own for each would
have to be set and cancelled.
"""

import heapq
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from broadloom.protocol.requests.outgoing import OutgoingRequest, RequestState

if TYPE_CHECKING:
    from broadloom.protocol.runtime import Runtime, Timer

STALE_MIN = 4096
"""Entries of ended requests stay until they are due, unless there are more than this and more than half."""


class Deadlines:
    def __init__(self, runtime: "Runtime", on_deadline: Callable[[OutgoingRequest], None]) -> None:
        self._runtime = runtime
        self._on_deadline = on_deadline
        self._heap: list[tuple[float, int, OutgoingRequest]] = []
        self._numbers = count()
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._compact_at = STALE_MIN

    def add(self, request: OutgoingRequest) -> None:
        heapq.heappush(self._heap, (request.deadline_at, next(self._numbers), request))
        if self._timer is None or request.deadline_at < self._timer_at:
            self._set_timer(request.deadline_at)
        if len(self._heap) > self._compact_at:
            self._heap = [entry for entry in self._heap if entry[2].state is not RequestState.ENDED]
            heapq.heapify(self._heap)
            self._compact_at = max(STALE_MIN, 2 * len(self._heap))

    def stop(self) -> None:
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._runtime.call_later(max(0.0, at - self._runtime.now()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = max(self._runtime.now(), self._timer_at)  # rounding must not make the timer early, and set again at once
        while self._heap and (self._heap[0][2].state is RequestState.ENDED or self._heap[0][0] <= now):
            _, _, request = heapq.heappop(self._heap)
            if request.state is not RequestState.ENDED:
                self._on_deadline(request)
        if self._heap and (self._timer is None or self._heap[0][0] < self._timer_at):
            self._set_timer(self._heap[0][0])
