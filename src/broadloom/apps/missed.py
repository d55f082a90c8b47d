"""`Missed`: the event of all applications for a program that reads too slowly, and the queue that reports it."""

from collections import deque
from typing import Generic, NamedTuple, TypeVar

E = TypeVar("E")


class Missed(NamedTuple):
    """This program did not read its events in time: the oldest were dropped."""

    event_count: int


class EventQueue(Generic[E]):
    """Events that one reader has not read; without a limit if `events_max` is None."""

    def __init__(self, events_max: int | None) -> None:
        self._events: deque[E] = deque(maxlen=events_max)
        self._dropped_count = 0

    def __len__(self) -> int:
        return len(self._events)

    def append(self, event: E) -> None:
        self._dropped_count += len(self._events) == self._events.maxlen
        self._events.append(event)

    def take(self) -> E | Missed | None:
        """The next event, after `Missed` for those that were dropped; None if there is none."""
        if self._dropped_count:
            count, self._dropped_count = self._dropped_count, 0
            return Missed(count)
        return self._events.popleft() if self._events else None
