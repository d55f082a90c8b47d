"""`PatternIndex`: the patterns of all programs by operation, then by file, so that ten thousand cost as much as ten."""

from collections.abc import Iterator
from typing import NamedTuple

from broadloom.switch.model import Pattern, Scope, SwitchMessage
from broadloom.wire import PeerId

ANY = ""
"""In place of an operation or a file: patterns that do not name one."""


class IndexedPattern(NamedTuple):
    peer_id: PeerId
    session: str
    pattern: Pattern


class PatternIndex:
    def __init__(self) -> None:
        self._by_operation: dict[str, dict[str, dict[tuple[PeerId, int], IndexedPattern]]] = {}
        self._keys: dict[PeerId, list[tuple[str, str, int]]] = {}
        """Where the patterns of each program are."""
        self._counts: dict[PeerId, int] = {}

    def __len__(self) -> int:
        return sum(self._counts.values())

    def set(self, peer_id: PeerId, session: str, patterns: tuple[Pattern, ...]) -> None:
        """Replace the patterns of a program."""
        self.remove(peer_id)
        keys = [
            (operation, file, number)
            for number, pattern in enumerate(patterns)
            for operation in pattern.operations or (ANY,)
            for file in _file_keys(pattern)
        ]
        for operation, file, number in keys:
            entries = self._by_operation.setdefault(operation, {}).setdefault(file, {})
            entries[peer_id, number] = IndexedPattern(peer_id, session, patterns[number])
        self._keys[peer_id] = keys
        if patterns:
            self._counts[peer_id] = len(patterns)

    def remove(self, peer_id: PeerId) -> None:
        self._counts.pop(peer_id, None)
        for operation, file, number in self._keys.pop(peer_id, []):
            by_file = self._by_operation[operation]
            by_file[file].pop((peer_id, number), None)
            if not by_file[file]:
                del by_file[file]
            if not by_file:
                del self._by_operation[operation]

    def __bool__(self) -> bool:
        return bool(self._counts)

    def find(self, message: SwitchMessage, session: str) -> Iterator[IndexedPattern]:
        """The patterns that match a message of this session. A pattern that names no file is found for all files."""
        files = (message.file, ANY) if message.file else (ANY,)
        for operation in (message.operation, ANY):
            by_file = self._by_operation.get(operation)
            if by_file is not None:
                for file in files:
                    for entry in by_file.get(file, _NOTHING).values():
                        if entry.pattern.accepts(message, is_local=entry.session == session):
                            yield entry


_NOTHING: dict[tuple[PeerId, int], IndexedPattern] = {}


def _file_keys(pattern: Pattern) -> tuple[str, ...]:
    """A pattern for files or the session can match whatever the file is."""
    if pattern.files is None or pattern.scope is Scope.FILE_OR_SESSION:
        return (ANY,)
    return tuple(dict.fromkeys(pattern.files))
