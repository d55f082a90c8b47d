"""Which files and rows of a folder of tapes are set aside, and why.

The rule: nothing is dropped silently, and nothing bad stops the rest. Each file is looked at by itself (every page is
read, and its checksum verified), then the files together, to find those that are there twice. What was set aside may
have been rows of a run: whoever judges by what is *not* on the tape has to know of it, so its run is told.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from pathlib import Path

from broadloom.pipeline.table import COUNT, TEXT, TableColumn
from broadloom.record.arrow_import import pa, pc, pq
from broadloom.record.schema import (
    CHANNEL_DIGITS,
    CHANNEL_KEY,
    RUN_KEY,
    SCHEMA_VERSION,
    VERSION_KEY,
    columns_in_version,
)

FUTURE_TOLERANCE_S = 300.0
"""A row later than now by more than this has a clock that is wrong. Less is the usual difference between machines."""


class QuarantineReason(Enum):
    UNREADABLE = "unreadable"
    NOT_A_TAPE = "not_a_tape"
    NEWER_VERSION = "newer_version"
    MISSING_COLUMN = "missing_column"
    WRONG_TYPE = "wrong_type"
    WRONG_FOLDER = "wrong_folder"
    DUPLICATE = "duplicate"
    OVERLAP = "overlap"
    FUTURE_TIME = "future_time"


REASONS: dict[QuarantineReason, str] = {
    QuarantineReason.UNREADABLE: "Truncated or damaged: it is no whole Parquet file, or a page has the wrong checksum.",
    QuarantineReason.NOT_A_TAPE: (
        "Not of a tape: not a Parquet file by its name, or without a schema version in its metadata."
    ),
    QuarantineReason.NEWER_VERSION: "Written by a later version, with a schema that this one does not know.",
    QuarantineReason.MISSING_COLUMN: "A column is missing that its schema version has.",
    QuarantineReason.WRONG_TYPE: "A column is of another type than its schema version says.",
    QuarantineReason.WRONG_FOLDER: (
        "Not where a tape would put it: its folders tell another channel or day than it does itself."
    ),
    QuarantineReason.DUPLICATE: "All its rows are in another file too: the same run, channel, day and ordinals.",
    QuarantineReason.OVERLAP: (
        "Some of its rows, not all, are in another file too; of the two, the smaller is set aside."
    ),
    QuarantineReason.FUTURE_TIME: (
        "Rows with a time later than now, by more than a tolerance; the other rows of the file are used."
    ),
}

QUARANTINE_COLUMNS = (
    TableColumn("file", TEXT, "The file, from the folder of tapes on."),
    TableColumn("rows", COUNT, "Rows that were set aside; null if they could not be counted."),
    TableColumn("reason", TEXT, "Why, as one word: " + ", ".join(each.value for each in QuarantineReason) + "."),
    TableColumn("detail", TEXT, "Why, for a person."),
    TableColumn("channel", TEXT, "Channel that the rows may be of, as far as can be told; null if any."),
    TableColumn("run", TEXT, "Run that the rows are of, as far as can be told; null if it is not known."),
    TableColumn("lacking", pa.bool_(), "Whether rows of that run are lacking now: not so for what is there twice."),
)

_FILE_NAME = re.compile(r"^(\d{8}T\d{6}-[0-9a-f]+)-\d+\.parquet$")


@dataclass(frozen=True, slots=True)
class FileReport:
    """What one file says of itself, and what is wrong with it by itself."""

    path: str
    """From the folder of tapes on."""
    bytes: int
    rows: int | None = None
    channel: str | None = None
    day: date | None = None
    run: str | None = None
    first: int | None = None
    """Its least ordinal."""
    last: int | None = None
    latest: datetime | None = None
    future_rows: int = 0
    reason: QuarantineReason | None = None
    detail: str = ""

    def with_reason(self, reason: QuarantineReason, detail: str) -> "FileReport":
        return replace(self, reason=reason, detail=detail)

    @property
    def is_used(self) -> bool:
        return self.reason is None


def examine(folder: str, path: str, latest: datetime) -> FileReport:
    """Look at one file, all of it. Never raises: what is wrong is the answer. Rows after `latest` are of the future."""
    full = Path(folder) / path
    try:
        told = FileReport(path, full.stat().st_size, run=_run_from_name(full.name))
    except OSError as problem:
        return FileReport(path, 0).with_reason(QuarantineReason.UNREADABLE, str(problem))
    if full.suffix != ".parquet":
        return told.with_reason(QuarantineReason.NOT_A_TAPE, "its name does not end in .parquet")
    parts = Path(path).parts
    where = re.fullmatch(r"channel=(.+)/day=(.+)", "/".join(parts[:-1]))
    channel, day = (where[1], _day(where[2])) if where else (None, None)
    told = replace(told, channel=channel, day=day)
    try:
        with pq.ParquetFile(full, page_checksum_verification=True) as file:
            return _examine_content(told, file, latest)
    except (pa.ArrowException, OSError, ValueError) as problem:
        return told.with_reason(
            QuarantineReason.UNREADABLE, str(problem).splitlines()[0] if str(problem) else repr(problem)
        )


def _examine_content(report: FileReport, file: pq.ParquetFile, latest: datetime) -> FileReport:
    schema = file.schema_arrow
    about = schema.metadata or {}
    report = replace(report, rows=file.metadata.num_rows)
    if not about.get(VERSION_KEY, b"").isdigit():
        return report.with_reason(QuarantineReason.NOT_A_TAPE, "its metadata has no version of a tape's schema")
    report = replace(report, run=about.get(RUN_KEY, b"").decode(errors="replace") or report.run)
    version = max(1, int(about[VERSION_KEY]))
    if version > SCHEMA_VERSION:
        return report.with_reason(
            QuarantineReason.NEWER_VERSION, f"schema version {version}; this Broadloom knows up to {SCHEMA_VERSION}"
        )
    lacking = [each.name for each in columns_in_version(version) if each.name not in schema.names]
    if lacking:
        return report.with_reason(QuarantineReason.MISSING_COLUMN, "without " + ", ".join(lacking))
    for each in columns_in_version(version):
        there = _decoded_type(schema.field(each.name).type)
        if there != each.type:
            return report.with_reason(QuarantineReason.WRONG_TYPE, f"{each.name} is {there}, not {each.type}")
    channel = about.get(CHANNEL_KEY, b"").decode(errors="replace")[:CHANNEL_DIGITS]
    if report.channel is None or report.day is None:
        return report.with_reason(QuarantineReason.WRONG_FOLDER, "it is not in a folder channel=.../day=...")
    if channel != report.channel:
        return report.with_reason(QuarantineReason.WRONG_FOLDER, f"it is of channel {channel}")
    firsts, lasts, ends, future_rows = [], [], [], 0
    begin, end = _day_bounds(report.day)
    # Every column is read, though few are looked at: that verifies each page's checksum.
    for batch in file.iter_batches(use_threads=False):
        if not batch.num_rows:
            continue
        ordinals, times = pc.min_max(batch["ordinal"]).as_py(), pc.min_max(batch["time"]).as_py()
        if times["min"] < begin or times["max"] >= end:
            return report.with_reason(
                QuarantineReason.WRONG_FOLDER, f"it has rows of {times['min']:%Y-%m-%d} to {times['max']:%Y-%m-%d}"
            )
        firsts.append(ordinals["min"])
        lasts.append(ordinals["max"])
        ends.append(times["max"])
        if times["max"] > latest:
            future_rows += pc.sum(pc.greater(batch["time"], pa.scalar(latest, batch["time"].type))).as_py()
    if not firsts:
        return report
    return replace(report, first=min(firsts), last=max(lasts), latest=max(ends), future_rows=future_rows)


def drop_duplicate_files(files: Iterable[FileReport]) -> list[FileReport]:
    """Of files that hold the same rows, one is used: the largest, and of equal ones the first by name."""
    by_run: dict[tuple[str | None, str | None, date | None], list[FileReport]] = {}
    judged = []
    for each in files:
        if each.is_used and each.first is not None:
            by_run.setdefault((each.run, each.channel, each.day), []).append(each)
        else:
            judged.append(each)
    for group in by_run.values():
        kept: list[FileReport] = []
        for each in sorted(group, key=lambda file: (-(file.rows or 0), file.path)):
            other = next(
                (
                    one
                    for one in kept
                    if _ordinal_range(one)[0] <= _ordinal_range(each)[1]
                    and _ordinal_range(each)[0] <= _ordinal_range(one)[1]
                ),
                None,
            )
            if other is None:
                kept.append(each)
            elif (
                _ordinal_range(other)[0] <= _ordinal_range(each)[0]
                and _ordinal_range(each)[1] <= _ordinal_range(other)[1]
            ):
                judged.append(each.with_reason(QuarantineReason.DUPLICATE, f"its rows are in {other.path}"))
            else:
                judged.append(each.with_reason(QuarantineReason.OVERLAP, f"some of its rows are in {other.path}"))
        judged += kept
    return sorted(judged, key=lambda file: file.path)


def quarantine(files: Iterable[FileReport]) -> pa.Table:
    """What was set aside, as a table of `QUARANTINE_COLUMNS`."""
    rows = []
    for each in files:
        if each.reason is not None:
            lacking = (
                each.reason not in (QuarantineReason.DUPLICATE, QuarantineReason.NOT_A_TAPE) and each.run is not None
            )
            rows.append((each.path, each.rows, each.reason.value, each.detail, each.channel, each.run, lacking))
        elif each.future_rows:
            detail = f"its latest row is of {each.latest:%Y-%m-%d %H:%M:%S} UTC"
            rows.append(
                (each.path, each.future_rows, QuarantineReason.FUTURE_TIME.value, detail, each.channel, each.run, True)
            )
    schema = pa.schema([pa.field(each.name, each.type) for each in QUARANTINE_COLUMNS])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def _ordinal_range(file: FileReport) -> tuple[int, int]:
    return (file.first if file.first is not None else 0), (file.last if file.last is not None else -1)


def _run_from_name(name: str) -> str | None:
    """The run as a tape's file name tells it: known even of a file that cannot be read."""
    told = _FILE_NAME.match(name)
    return told[1] if told else None


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _day_bounds(day: date) -> tuple[datetime, datetime]:
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return begin, begin + timedelta(days=1)


def _decoded_type(kind: pa.DataType) -> pa.DataType:
    """As a reader that knows no dictionaries sees it."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind
