"""Examines the files of a folder of tapes and quarantines files and rows that cannot be used.

Nothing is dropped silently, and no bad file or row stops the rest. Each file is examined by itself (every page is read
and its checksum verified), then duplicates are found among all files. The quarantine names the run of each file, and
between which times its excluded rows are, because the audit must know that rows of it may be missing.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum
from pathlib import Path

import polars as pl

from broadloom.pipeline.analysis.frames import from_rows
from broadloom.pipeline.engine.events import TEXT_COLUMNS, encode
from broadloom.pipeline.row_checks import CHECKED, has_flaws, row_problem
from broadloom.pipeline.table import column
from broadloom.record.arrow_import import pa, pc, pq
from broadloom.record.schema import (
    CHANNEL_DIGITS,
    CHANNEL_KEY,
    RUN_KEY,
    SCHEMA_VERSION,
    VERSION_KEY,
    columns_in_version,
    with_all_columns,
)

FUTURE_TOLERANCE_S = 300.0
"""Rows further in the future than this come from a wrong clock; less is the usual difference between machines."""


class QuarantineReason(StrEnum):
    """Why a file or some of its rows are not used; `docs/pipeline.md` has the meaning of each."""

    UNREADABLE = "unreadable"
    NOT_A_TAPE = "not_a_tape"
    NEWER_VERSION = "newer_version"
    MISSING_COLUMN = "missing_column"
    DUPLICATE_COLUMN = "duplicate_column"
    WRONG_TYPE = "wrong_type"
    WRONG_DIRECTORY = "wrong_directory"
    DUPLICATE = "duplicate"
    OVERLAP = "overlap"
    MISSING_VALUE = "missing_value"
    UNKNOWN_KIND = "unknown_kind"
    MALFORMED_ID = "malformed_id"
    OUT_OF_RANGE = "out_of_range"
    WRONG_DATE = "wrong_date"
    FUTURE_TIME = "future_time"


QUARANTINE_COLUMNS = (
    column("file_path", "Path relative to the directory of tapes."),
    column("row_count", "Rows excluded; null if unknown."),
    column("reason", "One of " + ", ".join(f"`{each.value}`" for each in QuarantineReason) + "."),
    column("detail", "Explanation."),
    column("channel", "Channel of the rows; null if unknown."),
    column("run_id", "Run of the rows; null if unknown."),
    column("is_whole_file", "Whether no row of the file is used."),
    column("leaves_gap", "Whether rows of that run are missing now; false for duplicates."),
    column("start_time", "Time of the last valid row before excluded rows; null if unknown."),
    column("end_time", "Time of the first valid row after them; null if unknown."),
)

_COMPLETE = (QuarantineReason.DUPLICATE, QuarantineReason.NOT_A_TAPE)
"""Nothing is missing without such a file."""

_FILE_NAME = re.compile(r"^(\d{8}T\d{6}-[0-9a-f]+)-\d+\.parquet$")


@dataclass(frozen=True, slots=True)
class ExcludedRows:
    """Rows of a file that is used otherwise."""

    reason: QuarantineReason
    count: int
    detail: str
    start_time: datetime | None
    end_time: datetime | None


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
    excluded: tuple[ExcludedRows, ...] = ()
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
        return (self.rows or 0) - sum(each.count for each in self.excluded) if self.is_used else 0


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
    run_id = metadata.get(RUN_KEY, b"").decode(errors="replace")
    report = replace(report, run_id=run_id or report.run_id)
    problem = file_problem(schema, report.channel if report.day is not None else None)
    if problem is not None:
        return report.with_reason(*problem)
    assert report.day is not None
    firsts, lasts = [], []
    peers: set[str] = set()
    is_flawed = False
    # All columns are read, though only some are used: that verifies the checksum of each page.
    for batch in file.iter_batches(use_threads=False):
        if not batch.num_rows:
            continue
        is_flawed = is_flawed or has_flaws(batch, report.day, latest)
        ordinals = pc.min_max(batch["ordinal"]).as_py()
        firsts.append(ordinals["min"])
        lasts.append(ordinals["max"])
        peers.update(_distinct(batch["peer"]))
    if is_flawed:
        return _examine_rows(report, file, latest)
    if not firsts:
        return report
    return replace(report, first_ordinal=min(firsts), last_ordinal=max(lasts), peers=frozenset(peers))


def file_problem(schema: pa.Schema, channel: str | None) -> tuple[QuarantineReason, str] | None:
    """Why a file with this schema cannot be used in the directory of this channel."""
    metadata = schema.metadata or {}
    if not metadata.get(VERSION_KEY, b"").isdigit():
        return QuarantineReason.NOT_A_TAPE, "no schema version in its metadata"
    version = max(1, int(metadata[VERSION_KEY]))
    if version > SCHEMA_VERSION:
        detail = f"schema version {version}; this version of Broadloom supports {SCHEMA_VERSION}"
        return QuarantineReason.NEWER_VERSION, detail
    columns = columns_in_version(version)
    missing = [each.name for each in columns if each.name not in schema.names]
    if missing:
        return QuarantineReason.MISSING_COLUMN, "missing " + ", ".join(missing)
    double = [name for name, count in Counter(schema.names).items() if count > 1]
    if double:
        return QuarantineReason.DUPLICATE_COLUMN, "twice: " + ", ".join(double)
    for each in columns:
        actual = _decoded_type(schema.field(each.name).type)
        if actual != each.type:
            return QuarantineReason.WRONG_TYPE, f"{each.name} is {actual}, not {each.type}"
    if channel is None:
        return QuarantineReason.WRONG_DIRECTORY, "not in a directory channel=.../event_date=..."
    own = metadata.get(CHANNEL_KEY, b"").decode(errors="replace")[:CHANNEL_DIGITS]
    return None if own == channel else (QuarantineReason.WRONG_DIRECTORY, f"it belongs to channel {own}")


def _examine_rows(report: FileReport, file: "pq.ParquetFile", latest: datetime) -> FileReport:
    """Look at each row of a file with rows that cannot be used."""
    table = with_all_columns(file.read(columns=CHECKED, use_threads=False), CHECKED)
    rows = encode(table, CHECKED).with_columns(event_date=pl.lit(report.day)).with_row_index("place")
    rows = rows.with_columns(problem=row_problem(rows.columns, latest))
    valid, excluded = rows.filter(pl.col("problem").is_null()), rows.filter(pl.col("problem").is_not_null())
    found = []
    for (name,), part in excluded.sort("place").group_by("problem", maintain_order=True):
        first, last = part["place"][0], part["place"][-1]
        before, after = valid.filter(pl.col("place") < first), valid.filter(pl.col("place") > last)
        found.append(
            ExcludedRows(
                QuarantineReason(name),
                part.height,
                _first_row(part.row(0, named=True)),
                before["event_time"][-1] if before.height else None,
                after["event_time"][0] if after.height else None,
            )
        )
    if not valid.height:
        worst = max(found, key=lambda each: each.count)
        times = rows["event_time"].drop_nulls().sort()
        if worst.reason is QuarantineReason.WRONG_DATE:
            span = f"{times[0]:%Y-%m-%d} to {times[-1]:%Y-%m-%d}"
            return report.with_reason(QuarantineReason.WRONG_DIRECTORY, f"it has rows from {span}")
        return report.with_reason(worst.reason, f"all rows; {worst.detail}")
    ordinals, peers = valid["ordinal"].sort(), valid["peer"].cast(pl.String).unique().drop_nulls()
    return replace(
        report,
        first_ordinal=ordinals[0],
        last_ordinal=ordinals[-1],
        peers=frozenset(peers),
        excluded=tuple(found),
    )


def _first_row(row: dict[str, object]) -> str:
    """What is on the first of the rows."""
    ignored = ("place", "run_id", "event_date", "problem")
    told = [f"{name} {value}" for name, value in row.items() if value is not None and name not in ignored]
    missing = [name for name in ("ordinal", "kind", "event_time") if row[name] is None]
    return "the first has " + ", ".join([*told, *(f"no {name}" for name in missing)])


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


def quarantine(files: Iterable[FileReport]) -> pl.DataFrame:
    """The excluded files and rows, as a table with `QUARANTINE_COLUMNS`."""
    rows: list[tuple[object, ...]] = []
    for each in files:
        if each.reason is not None:
            leaves_gap = each.reason not in _COMPLETE and each.run_id is not None
            about = each.rows, each.reason.value, each.detail, each.channel, each.run_id, True, leaves_gap
            rows.append((each.path, *about, None, None))
            continue
        for one in each.excluded:
            about = one.count, one.reason.value, one.detail, each.channel, each.run_id, False, True
            rows.append((each.path, *about, one.start_time, one.end_time))
    names = [each.name for each in QUARANTINE_COLUMNS]
    return from_rows([dict(zip(names, row, strict=True)) for row in rows], QUARANTINE_COLUMNS)


def unread_files(quarantined: pl.DataFrame) -> int:
    """How many files may have had rows that are missing now."""
    is_complete = pl.col("reason").is_in([each.value for each in _COMPLETE])
    return quarantined.filter(pl.col("is_whole_file") & ~is_complete).height


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
