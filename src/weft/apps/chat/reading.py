"""What was read, as intervals for each author of each group; kept in a small file beside the store.

A store remembers what came, and that is not the same: what came while nobody looked is unread. Without a file (a chat
in memory) it is forgotten with the process. The file is a convenience: if it cannot be read, all is unread again.
"""

import json
import os
from pathlib import Path

from weft.groups import GroupId, MemberId, MessageId
from weft.groups.intervals import Intervals

FORMAT = 1


class Reading:
    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._read: dict[GroupId, dict[MemberId, Intervals]] = {}
        self.has_changed = False
        self.problem = ""
        """Why the file could not be read; empty if all is well."""
        if path is not None and path.exists():
            try:
                self._read = _from_json(json.loads(path.read_text()))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
                self.problem = f"{path} cannot be read, so all messages count as unread: {problem}"

    def was_read(self, group: GroupId, named: MessageId) -> bool:
        spans = self._read.get(group, {}).get(named.author)
        return spans is not None and named.sequence in spans

    def read(self, group: GroupId, named: MessageId) -> None:
        self.has_changed |= self._read.setdefault(group, {}).setdefault(named.author, Intervals()).add(named.sequence)

    def unread(self, group: GroupId, had: dict[MemberId, Intervals]) -> int:
        """How many of these were not read."""
        read = self._read.get(group, {})
        return sum(spans.minus(read.get(author)).count for author, spans in had.items())

    def forget(self, group: GroupId) -> None:
        """The group was left."""
        self.has_changed |= self._read.pop(group, None) is not None

    def save(self) -> None:
        """In one step: a reader finds the old file or the new one. OSError if that is not possible."""
        if self._path is None or not self.has_changed:
            return
        beside = self._path.with_name(self._path.name + ".new")
        beside.write_text(json.dumps(self._as_json()))
        os.replace(beside, self._path)
        self.has_changed = False

    def _as_json(self) -> dict[str, object]:
        return {
            "format": FORMAT,
            "groups": {
                f"{group:016x}": {f"{author:016x}": list(spans) for author, spans in authors.items()}
                for group, authors in self._read.items()
            },
        }


def _from_json(
    told: dict[str, dict[str, dict[str, list[tuple[int, int]]]]],
) -> dict[GroupId, dict[MemberId, Intervals]]:
    if told["format"] != FORMAT:  # type: ignore[comparison-overlap]
        raise ValueError(f"it is of another version of Weft (format {told['format']})")
    return {
        int(group, 16): {
            int(author, 16): Intervals((int(first), int(last)) for first, last in spans)
            for author, spans in authors.items()
        }
        for group, authors in told["groups"].items()
    }
