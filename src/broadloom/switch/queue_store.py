"""The queues of a switch: messages that wait for programs that do not run.

A message is marked before it is handed to a program. One that is found marked after a crash may have been handled, so
it is not handed out again: no message ever has two handlers.
"""

from typing import NamedTuple, Protocol


class StoredMessage(NamedTuple):
    row: int
    program: str
    copy: bytes
    """As it came: a `HandlerCopy`."""
    queued_at_ms: int
    expires_at_ms: int
    is_marked: bool = False


class QueueStore(Protocol):
    def add(self, program: str, copy: bytes, queued_at_ms: int, expires_at_ms: int) -> int:
        """Returns its row, once it is stored."""

    def mark(self, row: int, is_marked: bool) -> None: ...

    def remove(self, row: int) -> None: ...

    def load(self) -> list[StoredMessage]:
        """In the order in which they were added."""

    def close(self) -> None: ...


class MemoryQueue:
    def __init__(self) -> None:
        self._rows: dict[int, StoredMessage] = {}
        self._last_row = 0

    def add(self, program: str, copy: bytes, queued_at_ms: int, expires_at_ms: int) -> int:
        self._last_row += 1
        self._rows[self._last_row] = StoredMessage(self._last_row, program, copy, queued_at_ms, expires_at_ms)
        return self._last_row

    def mark(self, row: int, is_marked: bool) -> None:
        self._rows[row] = self._rows[row]._replace(is_marked=is_marked)

    def remove(self, row: int) -> None:
        self._rows.pop(row, None)

    def load(self) -> list[StoredMessage]:
        return list(self._rows.values())

    def close(self) -> None:
        pass
