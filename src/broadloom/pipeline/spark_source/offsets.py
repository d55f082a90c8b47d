"""Stream offsets: the exact set of files that were read, and of row groups in files that were read in part.

An offset says what was read, not up to where. So a file that arrives late (copied from another machine, or finished by
a slower process) is read when it arrives, and never twice. Files of a run are numbered, so a run takes a few ranges;
other files are listed by path.

Spark stores offsets as JSON and compares them as text: equal sets must give equal text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from broadloom.errors import BroadloomError

_RUN_FILE_NAME = re.compile(r"(\d{8}T\d{6}-[0-9a-f]{8})-(\d{6,})\.parquet")


def run_and_number(path: str) -> tuple[str, int] | None:
    """Run and number in the name of a recorder's file; None for other files."""
    found = _RUN_FILE_NAME.fullmatch(path.rpartition("/")[2])
    return (found[1], int(found[2])) if found else None


class FileNumberSet:
    """A set of integers as ranges: `1-17,19`."""

    __slots__ = ("_ranges",)

    def __init__(self, text: str = "") -> None:
        self._ranges: list[tuple[int, int]] = []
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            self._ranges.append((int(first), int(last or first)))

    def __contains__(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self._ranges)

    def __str__(self) -> str:
        return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in self._ranges)

    def add(self, number: int) -> None:
        ranges: list[tuple[int, int]] = []
        for first, last in sorted([*self._ranges, (number, number)]):
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
            else:
                ranges.append((first, last))
        self._ranges = ranges


@dataclass(slots=True)
class TapeOffset:
    runs: dict[str, FileNumberSet] = field(default_factory=dict)
    """Files read completely, by run."""
    files: set[str] = field(default_factory=set)
    """Files read completely that have other names."""
    partial_files: dict[str, int] = field(default_factory=dict)
    """Number of row groups read of files that have more."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "TapeOffset":
        return cls(
            {run: FileNumberSet(text) for run, text in data.get("runs", {}).items()},
            set(data.get("files", {})),
            dict(data.get("parts", {})),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "files": dict.fromkeys(sorted(self.files), 1),
            "parts": dict(sorted(self.partial_files.items())),
            "runs": {run: str(numbers) for run, numbers in sorted(self.runs.items())},
        }

    def row_groups_read(self, path: str) -> int | None:
        """Number of row groups read of this file; None for all."""
        named = run_and_number(path)
        done = path in self.files if named is None else named[0] in self.runs and named[1] in self.runs[named[0]]
        return None if done else self.partial_files.get(path, 0)

    def advance(self, path: str, groups: int, group_count: int) -> None:
        """Record that this number of row groups of the file has been read."""
        if groups < group_count:
            self.partial_files[path] = groups
            return
        self.partial_files.pop(path, None)
        named = run_and_number(path)
        if named is None:
            self.files.add(path)
        else:
            self.runs.setdefault(named[0], FileNumberSet()).add(named[1])


class TapeFilesRemovedError(BroadloomError):
    """A file of a planned batch was removed or can no longer be read."""


def files_between(start: TapeOffset, end: TapeOffset, files: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """The files between two offsets, each with its first row group and the one after its last.

    `files` are the existing files with their number of row groups. Raises if one of the files between is not among
    them: a repeated batch must be the same batch.
    """
    found = []
    reached = TapeOffset.from_json(start.to_json())
    for path, groups in files.items():
        first, after = start.row_groups_read(path), end.row_groups_read(path)
        if first is not None and (after is None or after > first):
            found.append((path, first, groups if after is None else after))
            reached.advance(path, found[-1][2], groups)
    if reached.to_json() != end.to_json():
        raise TapeFilesRemovedError(
            "files of this batch were removed or damaged; put them back, or start with a new checkpoint. "
            f"Available: {reached.to_json()}; planned: {end.to_json()}"
        )
    return found
