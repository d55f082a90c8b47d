"""How far a stream has read a tape: an exact set of files, and of row groups within those that are read in part.

The rule: an offset says what was read, not up to where. So a file that turns up late (copied from another machine, or
finished by a slower process) is read when it comes, and never twice. Files of a run are numbered, so its share of the
set is a few ranges; other files stand there by their path.

An offset is kept by Spark as JSON, and compared as text: equal sets must give equal text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from broadloom.errors import BroadloomError

_RUN_FILE_NAME = re.compile(r"(\d{8}T\d{6}-[0-9a-f]{8})-(\d{6,})\.parquet")


def run_and_number(path: str) -> tuple[str, int] | None:
    """What the name of a recorder's file says; None if it is not one."""
    found = _RUN_FILE_NAME.fullmatch(path.rpartition("/")[2])
    return (found[1], int(found[2])) if found else None


class FileNumberSet:
    """A set of whole numbers as ranges: `1-17,19`."""

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
    """Files read to their end, by run."""
    files: set[str] = field(default_factory=set)
    """The same, of those that are no recorder's."""
    partial_files: dict[str, int] = field(default_factory=dict)
    """Row groups that were read of files that have more."""

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
        """Row groups of this file that were read; None for all of them."""
        named = run_and_number(path)
        done = path in self.files if named is None else named[0] in self.runs and named[1] in self.runs[named[0]]
        return None if done else self.partial_files.get(path, 0)

    def advance(self, path: str, groups: int, group_count: int) -> None:
        """So many row groups of this file are read now."""
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
    """A file that a batch was planned with is not there any more, or cannot be read any more."""


def files_between(start: TapeOffset, end: TapeOffset, files: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """What lies between two offsets: files, each with its first row group and the one after its last.

    `files` are those that there are, with their number of row groups. If some of what lies between is not among them,
    this raises: a batch that is repeated has to be the same batch.
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
            "files that this batch was planned with are gone or damaged: put them back, or start again with a new "
            f"checkpoint. There is {reached.to_json()}, planned was {end.to_json()}"
        )
    return found
