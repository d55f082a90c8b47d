"""`PatternRoom`: how much a program may register, so that its registration can be announced."""

from collections.abc import Callable

from broadloom.switch import settings
from broadloom.switch.model import Pattern


class PatternRoom:
    def __init__(self) -> None:
        self._count = 0
        self._name_bytes = 0
        """Too high after patterns were removed: it is counted again when a limit seems to be reached."""

    def take(self, pattern: Pattern, registered: Callable[[], tuple[Pattern, ...]]) -> None:
        """Room for one more pattern. Raises `ValueError` if there is none."""
        self._add((pattern,))
        if self._is_exceeded:
            self._count = self._name_bytes = 0
            self._add((*registered(), pattern))
        if self._is_exceeded:
            raise ValueError(
                f"too many patterns: at most {settings.PATTERNS_MAX:,}, with names of {settings.PATTERNS_BYTES_MAX:,} "
                "bytes in all; name several operations or files in one pattern"
            )

    def _add(self, patterns: tuple[Pattern, ...]) -> None:
        self._count += len(patterns)
        for pattern in patterns:
            self._name_bytes += sum(len(name.encode()) for name in (*pattern.operations, *(pattern.files or ())))

    @property
    def _is_exceeded(self) -> bool:
        return self._count > settings.PATTERNS_MAX or self._name_bytes > settings.PATTERNS_BYTES_MAX
