"""The finished files of a folder of tapes: which there are, what is in their row groups, and which cannot be read.

The rule: a file that cannot be read is set aside and told of, with its reason, and the rest goes on. Whether it can is
asked of its footer when it is planned, and of its pages (each has a checksum) when it is read.
"""

import hashlib
import json
import logging
import os
from datetime import date
from pathlib import Path
from typing import NamedTuple

from broadloom.pipeline.quarantine import QuarantineReason
from broadloom.pipeline.tape_set import TapesNotFoundError
from broadloom.record.arrow_import import pa, pq
from broadloom.record.schema import (
    CHANNEL_DIGITS,
    CHANNEL_KEY,
    RUN_KEY,
    SCHEMA_VERSION,
    VERSION_KEY,
    columns_in_version,
)

log = logging.getLogger("broadloom.pipeline")


class RowGroup(NamedTuple):
    """A row group."""

    rows: int
    first_us: int
    """Its earliest time, as its statistics tell."""


class ParquetFooter(NamedTuple):
    row_groups: tuple[RowGroup, ...]
    run: str
    ordinals: tuple[int, int]
    """The least and the largest; the second is smaller if they are not known."""

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.row_groups)

    def overlaps(self, other: "ParquetFooter") -> bool:
        """Whether rows of the one may be in the other. Only of the same channel and day is this asked."""
        (first, last), (others_first, others_last) = self.ordinals, other.ordinals
        return self.run == other.run and first <= others_last and others_first <= last


class ExcludedFile(NamedTuple):
    """A file, or a part of one, that cannot be read."""

    path: str
    reason: str
    detail: str


def list_files(folder: str) -> dict[str, tuple[int, int]]:
    """Finished files by their path within the folder, each with its size and time of change, sorted."""
    if not os.path.isdir(folder):
        raise TapesNotFoundError(f"there is no folder of tapes at {folder}")
    found = {}
    for channel in _folders(folder, "channel="):
        for day in _folders(channel.path, "day="):
            with os.scandir(day.path) as entries:
                for entry in entries:
                    if entry.name.endswith(".parquet") and not entry.name.startswith((".", "_")):
                        told = entry.stat()
                        found[f"{channel.name}/{day.name}/{entry.name}"] = (told.st_size, told.st_mtime_ns)
    return dict(sorted(found.items()))


def _folders(folder: str, prefix: str) -> list["os.DirEntry[str]"]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if entry.name.startswith(prefix) and entry.is_dir()]


def channel_and_day(path: str) -> tuple[str, date]:
    """Channel and day of a file."""
    channel, day, _ = path.split("/")
    return channel.partition("=")[2], date.fromisoformat(day.partition("=")[2])


def read_footer(folder: str, path: str) -> ParquetFooter | ExcludedFile:
    """What the footer says, or why the file is set aside."""
    try:
        channel_and_day(path)
    except ValueError:
        return ExcludedFile(path, QuarantineReason.NOT_A_TAPE.value, "its folder names no day")
    try:
        with pq.ParquetFile(os.path.join(folder, path)) as file:
            described, schema = file.metadata, file.schema_arrow
    except FileNotFoundError:
        return ExcludedFile(path, QuarantineReason.UNREADABLE.value, "it was removed while it was looked at")
    except (pa.ArrowException, OSError, ValueError) as problem:
        return ExcludedFile(path, QuarantineReason.UNREADABLE.value, str(problem).splitlines()[0])
    version = _version(schema)
    if version is None:
        return ExcludedFile(path, QuarantineReason.NOT_A_TAPE.value, "its metadata names no schema of a tape")
    if version > SCHEMA_VERSION:
        return ExcludedFile(
            path, QuarantineReason.NEWER_VERSION.value, f"version {version}, this reader knows up to {SCHEMA_VERSION}"
        )
    for column in columns_in_version(version):
        if column.name not in schema.names:
            return ExcludedFile(path, QuarantineReason.MISSING_COLUMN.value, f"without {column.name}")
        there = schema.field(column.name).type
        if there != column.type:
            return ExcludedFile(path, QuarantineReason.WRONG_TYPE.value, f"{column.name} is {there}, not {column.type}")
    about = schema.metadata or {}
    channel = about.get(CHANNEL_KEY, b"").decode(errors="replace")[:CHANNEL_DIGITS]
    if channel != channel_and_day(path)[0]:
        return ExcludedFile(path, QuarantineReason.WRONG_FOLDER.value, f"it is of channel {channel}")
    numbers = range(described.num_row_groups)
    groups = [described.row_group(each) for each in numbers]
    times = [_range(each, schema.names.index("time")) for each in groups]
    ordinals = [_range(each, schema.names.index("ordinal")) for each in groups]
    return ParquetFooter(
        tuple(RowGroup(group.num_rows, first) for group, (first, _) in zip(groups, times, strict=True)),
        about.get(RUN_KEY, b"").decode(errors="replace"),
        (min((first for first, _ in ordinals), default=0), max((last for _, last in ordinals), default=-1)),
    )


def _version(schema: pa.Schema) -> int | None:
    try:
        version = int((schema.metadata or {}).get(VERSION_KEY, 0))
    except ValueError:
        return None
    return version if version >= 1 else None


def _range(group: "pq.RowGroupMetaData", column: int) -> tuple[int, int]:
    """Least and largest value, as the statistics tell; the second is smaller if they do not."""
    told = group.column(column).statistics
    return (int(told.min_raw), int(told.max_raw)) if told is not None and told.has_min_max else (0, -1)


def report_excluded(quarantine: str | None, excluded: ExcludedFile) -> None:
    """In the log, and if there is a folder for it, there: once, however often it is told."""
    log.warning("%s is set aside (%s): %s", excluded.path, excluded.reason, excluded.detail)
    if quarantine is None:
        return
    name = hashlib.sha256(f"{excluded.path}\n{excluded.reason}\n{excluded.detail}".encode()).hexdigest()[:24]
    final = Path(quarantine) / f"{name}.json"
    if final.exists():
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    hidden = final.with_name(f".{name}.{os.getpid()}")
    hidden.write_text(json.dumps(excluded._asdict()))
    hidden.replace(final)
