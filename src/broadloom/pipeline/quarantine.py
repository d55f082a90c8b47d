"""Examines the files of a folder of tapes and quarantines those that cannot be used.

Nothing is dropped silently, and no bad file stops the rest. Each file is examined by itself (every page is read and its
checksum verified), then duplicates are found among all files. The quarantine names the run of each file, because the
audit must know that rows of it may be missing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from pathlib import Path

from broadloom.pipeline.table import COUNT, FLAG, TEXT, TableColumn
from broadloom.record.arrow_import import pa, pc, pq
from broadloom.record.schema import (
    CHANNEL_DIGITS,
    CHANNEL_KEY,
    RUN_KEY,
    SCHEMA,
    SCHEMA_VERSION,
    VERSION_KEY,
    columns_in_version,
)

FUTURE_TOLERANCE_S = 300.0
"""Rows further in the future than this come from a wrong clock; less is the usual difference between machines."""


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
    QuarantineReason.UNREADABLE: "Truncated or damaged: not a complete Parquet file, or a page with a wrong checksum.",
    QuarantineReason.NOT_A_TAPE: (
        "Not part of a tape: not named `.parquet`, or without a schema version in its metadata."
    ),
    QuarantineReason.NEWER_VERSION: "Written by a newer version of Broadloom, with an unknown schema version.",
    QuarantineReason.MISSING_COLUMN: "A required column is missing; also files of schema versions before 3.",
    QuarantineReason.WRONG_TYPE: "A column has the wrong type.",
    QuarantineReason.WRONG_FOLDER: ("In the wrong place: channel or date of its folders do not match its content."),
    QuarantineReason.DUPLICATE: "All its rows are in another file too: same run, channel, date and ordinals.",
    QuarantineReason.OVERLAP: ("Some of its rows are in another file too; the smaller file is excluded."),
    QuarantineReason.FUTURE_TIME: ("Rows more than a tolerance in the future; the other rows of the file are used."),
}

QUARANTINE_COLUMNS = (
    TableColumn("file_path", TEXT, "Path relative to the folder of tapes."),
    TableColumn("row_count", COUNT, "Rows excluded; null if unknown."),
    TableColumn("reason", TEXT, "One of " + ", ".join(f"`{each.value}`" for each in QuarantineReason) + "."),
    TableColumn("detail", TEXT, "Explanation."),
    TableColumn("channel", TEXT, "Channel of the rows; null if unknown."),
    TableColumn("run_id", TEXT, "Run of the rows; null if unknown."),
    TableColumn("leaves_gap", FLAG, "Whether rows of that run are missing now; false for duplicates."),
)

TEXT_COLUMNS = frozenset(each.name for each in SCHEMA if pa.types.is_string(each.type))

_FILE_NAME = re.compile(r"^(\d{8}T\d{6}-[0-9a-f]+)-\d+\.parquet$")


@dataclass(frozen=True, slots=True)
class FileReport:
    """The result of examining one file."""

    path: str
    """Relative to the folder of tapes."""
    bytes: int
    rows: int | None = None
    channel: str | None = None
    day: date | None = None
    run_id: str | None = None
    first_ordinal: int | None = None
    last_ordinal: int | None = None
    latest: datetime | None = None
    future_rows: int = 0
    peers: frozenset[str] = frozenset()
    """Peers that recorded in it."""
    reason: QuarantineReason | None = None
    detail: str = ""

    def with_reason(self, reason: QuarantineReason, detail: str) -> "FileReport":
        return replace(self, reason=reason, detail=detail)

    @property
    def is_used(self) -> bool:
        return self.reason is None

    @property
    def used_rows(self) -> int:
        return (self.rows or 0) - self.future_rows if self.is_used else 0


def examine(folder: str, path: str, latest: datetime) -> FileReport:
    """Read one file completely. Never raises: problems go into the report. Rows after `latest` are in the future."""
    full = Path(folder) / path
    try:
        report = FileReport(path, full.stat().st_size, run_id=_run_from_name(full.name))
    except OSError as problem:
        return FileReport(path, 0).with_reason(QuarantineReason.UNREADABLE, str(problem))
    if full.suffix != ".parquet":
        return report.with_reason(QuarantineReason.NOT_A_TAPE, "not named .parquet")
    parts = Path(path).parts
    folders = re.fullmatch(r"channel=(.+)/event_date=(.+)", "/".join(parts[:-1]))
    channel, day = (folders[1], _day(folders[2])) if folders else (None, None)
    report = replace(report, channel=channel, day=day)
    try:
        known = pq.read_schema(full)
        # Texts as dictionaries: they are checked, but not decoded row by row.
        texts = [each.name for each in known if each.name in TEXT_COLUMNS and pa.types.is_string(each.type)]
        with pq.ParquetFile(full, page_checksum_verification=True, read_dictionary=texts) as file:
            return _examine_content(report, file, latest)
    except (pa.ArrowException, OSError, ValueError) as problem:
        return report.with_reason(
            QuarantineReason.UNREADABLE, str(problem).splitlines()[0] if str(problem) else repr(problem)
        )


def _examine_content(report: FileReport, file: pq.ParquetFile, latest: datetime) -> FileReport:
    schema = file.schema_arrow
    metadata = schema.metadata or {}
    report = replace(report, rows=file.metadata.num_rows)
    if not metadata.get(VERSION_KEY, b"").isdigit():
        return report.with_reason(QuarantineReason.NOT_A_TAPE, "no schema version in its metadata")
    run_id = metadata.get(RUN_KEY, b"").decode(errors="replace")
    report = replace(report, run_id=run_id or report.run_id)
    version = max(1, int(metadata[VERSION_KEY]))
    if version > SCHEMA_VERSION:
        return report.with_reason(
            QuarantineReason.NEWER_VERSION,
            f"schema version {version}; this version of Broadloom supports {SCHEMA_VERSION}",
        )
    missing = [each.name for each in columns_in_version(version) if each.name not in schema.names]
    if missing:
        return report.with_reason(QuarantineReason.MISSING_COLUMN, "missing " + ", ".join(missing))
    for each in columns_in_version(version):
        actual = _decoded_type(schema.field(each.name).type)
        if actual != each.type:
            return report.with_reason(QuarantineReason.WRONG_TYPE, f"{each.name} is {actual}, not {each.type}")
    channel = metadata.get(CHANNEL_KEY, b"").decode(errors="replace")[:CHANNEL_DIGITS]
    if report.channel is None or report.day is None:
        return report.with_reason(QuarantineReason.WRONG_FOLDER, "not in a folder channel=.../event_date=...")
    if channel != report.channel:
        return report.with_reason(QuarantineReason.WRONG_FOLDER, f"it belongs to channel {channel}")
    firsts, lasts, ends, future_rows = [], [], [], 0
    peers: set[str] = set()
    begin, end = _day_bounds(report.day)
    # All columns are read, though only two are used: that verifies the checksum of each page.
    for batch in file.iter_batches(use_threads=False):
        if not batch.num_rows:
            continue
        ordinals, times = pc.min_max(batch["ordinal"]).as_py(), pc.min_max(batch["event_time"]).as_py()
        if times["min"] < begin or times["max"] >= end:
            return report.with_reason(
                QuarantineReason.WRONG_FOLDER, f"it has rows from {times['min']:%Y-%m-%d} to {times['max']:%Y-%m-%d}"
            )
        firsts.append(ordinals["min"])
        lasts.append(ordinals["max"])
        ends.append(times["max"])
        peers.update(_distinct(batch["peer"]))
        if times["max"] > latest:
            future_rows += pc.sum(pc.greater(batch["event_time"], pa.scalar(latest, batch["event_time"].type))).as_py()
    if not firsts:
        return report
    return replace(
        report,
        first_ordinal=min(firsts),
        last_ordinal=max(lasts),
        latest=max(ends),
        future_rows=future_rows,
        peers=frozenset(peers),
    )


def drop_duplicate_files(files: Iterable[FileReport]) -> list[FileReport]:
    """Of files with the same rows, use the largest; of equally large ones, the first by name."""
    by_run: dict[tuple[str | None, str | None, date | None], list[FileReport]] = {}
    judged = []
    for each in files:
        if each.is_used and each.first_ordinal is not None:
            by_run.setdefault((each.run_id, each.channel, each.day), []).append(each)
        else:
            judged.append(each)
    for group in by_run.values():
        kept: list[FileReport] = []
        for each in sorted(group, key=lambda file: (-(file.rows or 0), file.path)):
            first, last = _ordinal_range(each)
            other = next(
                (one for one in kept if _ordinal_range(one)[0] <= last and first <= _ordinal_range(one)[1]), None
            )
            if other is None:
                kept.append(each)
            elif _ordinal_range(other)[0] <= first and last <= _ordinal_range(other)[1]:
                judged.append(each.with_reason(QuarantineReason.DUPLICATE, f"its rows are in {other.path}"))
            else:
                judged.append(each.with_reason(QuarantineReason.OVERLAP, f"some of its rows are in {other.path}"))
        judged += kept
    return sorted(judged, key=lambda file: file.path)


def quarantine(files: Iterable[FileReport]) -> pa.Table:
    """The excluded files and rows, as a table with `QUARANTINE_COLUMNS`."""
    rows = []
    for each in files:
        if each.reason is not None:
            is_complete = each.reason in (QuarantineReason.DUPLICATE, QuarantineReason.NOT_A_TAPE)
            leaves_gap = not is_complete and each.run_id is not None
            rows.append((each.path, each.rows, each.reason.value, each.detail, each.channel, each.run_id, leaves_gap))
        elif each.future_rows:
            detail = f"its latest row is at {each.latest:%Y-%m-%d %H:%M:%S} UTC"
            reason = QuarantineReason.FUTURE_TIME.value
            rows.append((each.path, each.future_rows, reason, detail, each.channel, each.run_id, True))
    schema = pa.schema([pa.field(each.name, each.type) for each in QUARANTINE_COLUMNS])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def _ordinal_range(file: FileReport) -> tuple[int, int]:
    first, last = file.first_ordinal, file.last_ordinal
    return (first if first is not None else 0), (last if last is not None else -1)


def _run_from_name(name: str) -> str | None:
    """The run in the file name: known even if the file cannot be read."""
    found = _FILE_NAME.match(name)
    return found[1] if found else None


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _day_bounds(day: date) -> tuple[datetime, datetime]:
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return begin, begin + timedelta(days=1)


def _distinct(values: pa.Array) -> list[str]:
    """The values that occur. A dictionary may have others too."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary.take(pc.unique(values.indices).drop_null())
    return list(pc.unique(values).drop_null().to_pylist())


def _decoded_type(kind: pa.DataType) -> pa.DataType:
    """The type without dictionary encoding."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind
