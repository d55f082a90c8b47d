"""The finished files of a folder of tapes, their row groups, and files that cannot be read.

A file that cannot be read is excluded and reported with the reason, and the rest is read. The footer is checked when a
read is planned, the checksum of each page when it is read.
"""

import hashlib
import json
import logging
import os
from datetime import date
from pathlib import Path
from typing import NamedTuple

from broadloom.pipeline.quarantine import QuarantineReason, file_problem
from broadloom.pipeline.tape_set import TapesNotFoundError
from broadloom.record.arrow_import import pa, pc, pq
from broadloom.record.schema import DAY_US, RUN_KEY
from broadloom.record.tape_file import write_atomically

log = logging.getLogger("broadloom.pipeline")


class RowGroup(NamedTuple):
    rows: int
    first_us: int
    """Earliest event time."""


class ParquetFooter(NamedTuple):
    row_groups: tuple[RowGroup, ...]
    run: str
    ordinals: tuple[int, int]
    """Lowest and highest; the second is smaller if unknown."""

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.row_groups)

    def overlaps(self, other: "ParquetFooter") -> bool:
        """Whether the two may share rows. Both must be of the same channel and date."""
        (first, last), (others_first, others_last) = self.ordinals, other.ordinals
        return self.run == other.run and first <= others_last and others_first <= last


class ExcludedFile(NamedTuple):
    """A file, or a part of one, that cannot be read."""

    path: str
    reason: str
    detail: str


def list_files(folder: str) -> dict[str, tuple[int, int]]:
    """Finished files by relative path, each with size and modification time, sorted."""
    if not os.path.isdir(folder):
        raise TapesNotFoundError(f"no directory of tapes at {folder}")
    found = {}
    for channel in _folders(folder, "channel="):
        for day in _folders(channel.path, "event_date="):
            with os.scandir(day.path) as entries:
                for entry in entries:
                    if entry.name.endswith(".parquet") and not entry.name.startswith((".", "_")):
                        try:
                            stat = entry.stat()
                        except OSError:  # a broken link, or removed at this moment: excluded when it is read
                            found[f"{channel.name}/{day.name}/{entry.name}"] = (0, 0)
                            continue
                        found[f"{channel.name}/{day.name}/{entry.name}"] = (stat.st_size, stat.st_mtime_ns)
    return dict(sorted(found.items()))


def _folders(folder: str, prefix: str) -> list["os.DirEntry[str]"]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if entry.name.startswith(prefix) and entry.is_dir()]


def channel_and_day(path: str) -> tuple[str, date]:
    channel, day, _ = path.split("/")
    return channel.partition("=")[2], date.fromisoformat(day.partition("=")[2])


def read_footer(folder: str, path: str) -> ParquetFooter | ExcludedFile:
    """The footer, or why the file is excluded. Never raises."""
    full = os.path.join(folder, path)
    try:
        channel_and_day(path)
    except ValueError:
        return ExcludedFile(path, QuarantineReason.NOT_A_TAPE.value, "its directory has no date")
    if not os.path.isfile(full):  # opening a pipe would wait for its writer
        return ExcludedFile(path, QuarantineReason.UNREADABLE.value, "not a file, or it was removed")
    try:
        with pq.ParquetFile(full) as file:
            problem = file_problem(file.schema_arrow, channel_and_day(path)[0])
            return _footer(path, file) if problem is None else ExcludedFile(path, problem[0].value, problem[1])
    except FileNotFoundError:
        return ExcludedFile(path, QuarantineReason.UNREADABLE.value, "it was removed while it was examined")
    except Exception as problem:  # whatever a broken file leads to, the others are read
        detail = str(problem).splitlines()[0] if str(problem) else repr(problem)
        return ExcludedFile(path, QuarantineReason.UNREADABLE.value, detail)


def _footer(path: str, file: "pq.ParquetFile") -> ParquetFooter | ExcludedFile:
    groups = range(file.metadata.num_row_groups)
    times = [_range(file, each, "event_time") for each in groups]
    ordinals = [each for each in (_range(file, group, "ordinal") for group in groups) if each is not None]
    begin_us = (channel_and_day(path)[1] - date(1970, 1, 1)).days * DAY_US
    known = [each for each in times if each is not None]
    if known and all(each[1] < begin_us or each[0] >= begin_us + DAY_US for each in known):
        return ExcludedFile(path, QuarantineReason.WRONG_DIRECTORY.value, "it has rows of another date")
    return ParquetFooter(
        tuple(
            RowGroup(file.metadata.row_group(group).num_rows, each[0] if each is not None else 0)
            for group, each in zip(groups, times, strict=True)
        ),
        (file.schema_arrow.metadata or {}).get(RUN_KEY, b"").decode(errors="replace"),
        (min((first for first, _ in ordinals), default=0), max((last for _, last in ordinals), default=-1)),
    )


def _range(file: "pq.ParquetFile", group: int, column: str) -> tuple[int, int] | None:
    """Lowest and highest value of a row group, from the statistics if there are any; None if there are no values."""
    statistics = file.metadata.row_group(group).column(file.schema_arrow.names.index(column)).statistics
    if statistics is not None and statistics.has_min_max:
        return int(statistics.min_raw), int(statistics.max_raw)
    found = pc.min_max(file.read_row_group(group, columns=[column], use_threads=False)[column].cast(pa.int64())).as_py()
    return None if found["min"] is None else (found["min"], found["max"])


def report_excluded(quarantine: str | None, excluded: ExcludedFile) -> None:
    """Log the file, and write a report into the quarantine folder once."""
    log.warning("%s is excluded (%s): %s", excluded.path, excluded.reason, excluded.detail)
    if quarantine is None:
        return
    name = hashlib.sha256(f"{excluded.path}\n{excluded.reason}\n{excluded.detail}".encode()).hexdigest()[:24]
    final = Path(quarantine) / f"{name}.json"
    if final.exists():
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(final, json.dumps(excluded._asdict()).encode())
