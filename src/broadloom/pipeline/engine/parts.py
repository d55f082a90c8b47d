"""Parts of a tape: files that one task reads, closed in their receivers.

Files of a channel that share a recording peer are in one part, so that all events of a peer are. Usually a process
records its own peers, and each of its runs is a part.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from broadloom.pipeline.quarantine import FileReport

PART_ROWS = 1_500_000
"""Rows of a part, about: some 500 MB while polars works on it. Smaller parts are combined up to this."""

PART_ROWS_MAX = 4 * PART_ROWS
"""A larger part is cut by receiver, which takes as long as a third of the whole build."""


@dataclass(frozen=True, slots=True)
class Part:
    channel: str
    files: tuple[str, ...]
    """Paths."""
    rows: int

    @property
    def cuts(self) -> int:
        """Number of pieces, if the part is too large for a task."""
        return 1 if self.rows <= PART_ROWS_MAX else math.ceil(self.rows / PART_ROWS)


def parts_of(folder: str, files: Iterable[FileReport], tasks_min: int) -> list[Part]:
    """The parts of all channels; at least `tasks_min`, if the tapes allow it. Channels without rows have none."""
    by_channel: dict[str, list[FileReport]] = {}
    for each in files:
        if each.used_rows:
            by_channel.setdefault(each.channel or "", []).append(each)
    total = sum(each.used_rows for used in by_channel.values() for each in used)
    rows_max = min(PART_ROWS, max(1, math.ceil(total / tasks_min)))
    return [
        Part(channel, tuple(f"{folder}/{each.path}" for each in pack), sum(each.used_rows for each in pack))
        for channel, used in sorted(by_channel.items())
        for pack in _packed(_closed(used), rows_max)
    ]


def _closed(files: Sequence[FileReport]) -> list[list[FileReport]]:
    """Groups of files without a common peer: connected components of files and peers (union-find)."""
    root = list(range(len(files)))

    def find(index: int) -> int:
        while root[index] != index:
            root[index] = root[root[index]]
            index = root[index]
        return index

    first_with: dict[str, int] = {}
    for index, file in enumerate(files):
        for peer in file.peers:
            other = find(first_with.setdefault(peer, index))
            root[max(other, find(index))] = min(other, find(index))
    groups: dict[int, list[FileReport]] = {}
    for index, file in enumerate(files):
        groups.setdefault(find(index), []).append(file)
    return list(groups.values())


def _packed(groups: list[list[FileReport]], rows_max: int) -> list[list[FileReport]]:
    """Combine small groups, in order."""
    packs: list[list[FileReport]] = []
    rows = 0
    for group in groups:
        size = sum(each.used_rows for each in group)
        if packs and rows + size <= rows_max:
            packs[-1] += group
            rows += size
        else:
            packs.append(list(group))
            rows = size
    return packs
