"""Read a tape without Spark, as an Arrow table or as a summary.

A damaged file is reported with its path, never skipped. Page checksums are verified.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path

from broadloom.protocol import ChannelName
from broadloom.record.arrow_import import pa, pc, pq
from broadloom.record.schema import (
    CHANNEL_DIGITS,
    COLUMNS,
    OLDEST_VERSION,
    SCHEMA,
    SCHEMA_VERSION,
    VERSION_KEY,
    EventKind,
    with_all_columns,
)

TABLE_SCHEMA: pa.Schema = pa.schema([*SCHEMA, pa.field("channel", pa.string()), pa.field("event_date", pa.date32())])
"""The result of `read`: the columns of the files and of their partition folders."""

_PARTITION_COLUMNS = ("channel", "event_date")


class TapeReadError(ValueError):
    """A file of the tape is damaged, does not belong to a tape, or has an unsupported version."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be read: {reason}")
        self.path = path
        self.reason = reason


@dataclass(slots=True)
class ChannelSummary:
    channel: str
    """First digits of the channel id."""
    files: int = 0
    bytes: int = 0
    rows: int = 0
    dropped_rows: int = 0
    """Rows dropped by the recorder, according to the `rows_dropped` rows."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Rows by kind."""
    peers: set[str] = field(default_factory=set)
    start_time: datetime | None = None
    end_time: datetime | None = None

    def add(self, other: "ChannelSummary") -> None:
        self.files += other.files
        self.bytes += other.bytes
        self.rows += other.rows
        self.dropped_rows += other.dropped_rows
        self.kinds += other.kinds
        self.peers |= other.peers
        self.start_time = min(filter(None, (self.start_time, other.start_time)), default=None)
        self.end_time = max(filter(None, (self.end_time, other.end_time)), default=None)


def read(
    directory: Path | str,
    *,
    channel: ChannelName | str | None = None,
    day: date | None = None,
    kinds: Iterable[EventKind | str] | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The rows of a tape, or of one of its files, file by file. The rows of one peer are in order.

    Optionally only those of one channel (its name, or the digits of its folder), one day, some kinds or some columns. A
    file is read whole, whatever its channel and day.
    """
    wanted = list(columns) if columns is not None else TABLE_SCHEMA.names
    unknown = [name for name in wanted if name not in TABLE_SCHEMA.names]
    if unknown:
        raise ValueError(f"a tape has no column {unknown[0]!r}")
    chosen = [EventKind(kind).value for kind in kinds] if kinds is not None else None
    schema = pa.schema([TABLE_SCHEMA.field(name) for name in wanted])
    tables = [schema.empty_table()]
    source = Path(directory)
    for path in [source] if source.is_file() else _paths(source, channel, day):
        table = _rows(path, [*{name: None for name in (*wanted, "kind") if name not in _PARTITION_COLUMNS}])
        if chosen is not None:
            table = table.filter(pc.is_in(table["kind"], pa.array(chosen, pa.string())))
        for name in _PARTITION_COLUMNS:
            if name in wanted:
                column = pa.repeat(
                    pa.scalar(_partition_values(path)[name], TABLE_SCHEMA.field(name).type), table.num_rows
                )
                table = table.append_column(name, column)
        tables.append(table.select(wanted).cast(schema))
    return pa.concat_tables(tables)


def summarize(
    directory: Path | str, *, on_error: Callable[[TapeReadError], None] | None = None
) -> list[ChannelSummary]:
    """Summarize a tape by channel. With `on_error`, it is called for each damaged file, and the others are read."""
    channels: dict[str, ChannelSummary] = {}
    for path in _paths(Path(directory), None, None):
        try:
            found = _summarize_file(path)
        except TapeReadError as problem:
            if on_error is None:
                raise
            on_error(problem)
            continue
        channels.setdefault(found.channel, ChannelSummary(found.channel)).add(found)
    return list(channels.values())


def _summarize_file(path: Path) -> ChannelSummary:
    summary = ChannelSummary(str(_partition_values(path)["channel"]))
    table = _rows(path, ["kind", "event_time", "peer", "event_count"])
    summary.files, summary.bytes, summary.rows = 1, path.stat().st_size, table.num_rows
    for each in pc.value_counts(table["kind"]).to_pylist():
        summary.kinds[str(each["values"])] += each["counts"]
    dropped = table.filter(pc.equal(table["kind"], EventKind.ROWS_DROPPED.value))["event_count"]
    summary.dropped_rows = pc.sum(dropped).as_py() or 0
    summary.peers.update(filter(None, table["peer"].unique().to_pylist()))
    summary.start_time, summary.end_time = pc.min_max(table["event_time"]).as_py().values()
    return summary


def _paths(directory: Path, channel: ChannelName | str | None, day: date | None) -> Iterator[Path]:
    """Finished files; those of one run in order."""
    if not directory.is_dir():
        raise FileNotFoundError(f"there is no tape at {directory}")
    if isinstance(channel, str) and "/" in channel:
        channel = ChannelName.parse(channel)
    digits = channel.id.hex() if isinstance(channel, ChannelName) else channel
    folder = f"channel={digits[:CHANNEL_DIGITS] if digits is not None else '*'}"
    for path in sorted(directory.glob(f"{folder}/event_date={day.isoformat() if day is not None else '*'}/*.parquet")):
        if not path.name.startswith((".", "_")):
            yield path


def _partition_values(path: Path) -> dict[str, str | date]:
    channel, day = path.parent.parent.name.partition("=")[2], path.parent.name.partition("=")[2]
    try:
        return {"channel": channel, "event_date": date.fromisoformat(day)}
    except ValueError:
        raise TapeReadError(path, f"{day!r} is not a day") from None


def _rows(path: Path, columns: list[str]) -> pa.Table:
    """Columns of one file. Columns that its version does not have are null."""
    if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
        raise TapeReadError(path, "not a file")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            version = int((file.schema_arrow.metadata or {}).get(VERSION_KEY, 0))
            if not OLDEST_VERSION <= version <= SCHEMA_VERSION:
                known = f"{OLDEST_VERSION} to {SCHEMA_VERSION}" if OLDEST_VERSION < SCHEMA_VERSION else SCHEMA_VERSION
                what = f"schema version {version}; this reader supports {known}" if version else "not a tape"
                raise TapeReadError(path, what)
            there = set(file.schema_arrow.names)
            table = file.read(columns=[name for name in columns if name in there], use_threads=False)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError) as problem:
        if isinstance(problem, TapeReadError):
            raise
        raise TapeReadError(path, str(problem)) from problem
    for each in COLUMNS:
        nulls = table[each.name].null_count if each.is_required and each.name in table.column_names else 0
        if nulls:
            raise TapeReadError(path, f"{each.name} is null in {nulls:,} row{'s' * (nulls > 1)}")
    return with_all_columns(table, columns).replace_schema_metadata(None)
