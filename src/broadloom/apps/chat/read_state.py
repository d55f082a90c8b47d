"""Which messages were read, as intervals per author and group, in a small file beside the store.

The store knows what arrived; messages that arrived while nobody looked are unread. Without a file the state ends with
the process. If the file cannot be read, everything counts as unread.
"""

import json
import os
from pathlib import Path

from broadloom.groups import GroupId, MemberId, MessageId
from broadloom.groups.intervals import IntervalSet

FORMAT = 1


class ReadState:
    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._read: dict[GroupId, dict[MemberId, IntervalSet]] = {}
        self.has_changed = False
        self.load_error = ""
        """Why the file could not be read; empty if it could."""
        if path is not None and path.exists():
            try:
                self._read = _from_json(json.loads(path.read_text()))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
                self.load_error = f"{path} cannot be read, so all messages count as unread: {problem}"

    def is_read(self, group_id: GroupId, message_id: MessageId) -> bool:
        spans = self._read.get(group_id, {}).get(message_id.author)
        return spans is not None and message_id.sequence in spans

    def mark_read(self, group_id: GroupId, message_id: MessageId) -> None:
        self.has_changed |= (
            self._read.setdefault(group_id, {}).setdefault(message_id.author, IntervalSet()).add(message_id.sequence)
        )

    def unread_count(self, group_id: GroupId, held: dict[MemberId, IntervalSet]) -> int:
        """Number of unread messages among these."""
        read = self._read.get(group_id, {})
        return sum(spans.minus(read.get(author)).count for author, spans in held.items())

    def forget_group(self, group_id: GroupId) -> None:
        """The group was left."""
        self.has_changed |= self._read.pop(group_id, None) is not None

    def save(self) -> None:
        """Atomic: a reader sees the old file or the new one. OSError if it cannot be written."""
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
    data: dict[str, dict[str, dict[str, list[tuple[int, int]]]]],
) -> dict[GroupId, dict[MemberId, IntervalSet]]:
    if data["format"] != FORMAT:  # type: ignore[comparison-overlap]
        raise ValueError(f"it is of another version of Broadloom (format {data['format']})")
    return {
        int(group, 16): {
            int(author, 16): IntervalSet((int(first), int(last)) for first, last in spans)
            for author, spans in authors.items()
        }
        for group, authors in data["groups"].items()
    }
