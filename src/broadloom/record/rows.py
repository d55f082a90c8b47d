"""Rows on their way to the file: plain tuples, converted to Arrow columns by the writer.

In the thread of the channel, a row costs one tuple. The writer formats ids and builds columns, many rows at a time.
Columns that most rows do not have are kept apart, in `OptionalColumns`.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from broadloom.record.arrow_import import pa
from broadloom.record.dropped_rows import Key, RowRange
from broadloom.record.schema import DAY_US, ID_COLUMNS, INT64_MAX, TIME, EventKind, file_schema
from broadloom.wire import PeerId

KIND_NUMBERS = {kind: number for number, kind in enumerate(EventKind)}
"""Kinds inside a tuple. Never written to disk."""
_KIND_NAMES = pa.array([kind.value for kind in EventKind])


class OptionalColumns(NamedTuple):
    """Columns that few rows have. The fields have the names of the columns."""

    address: str | None = None
    reason: str | None = None
    name: str | None = None
    group_id: str | None = None
    parent_author: PeerId | None = None
    parent_sequence: int | None = None
    topic: str | None = None
    payload: bytes | None = None
    member: int | None = None
    member_sequence: int | None = None
    parent_member: int | None = None
    parent_member_sequence: int | None = None
    role: str | None = None
    ticket_serial: str | None = None
    is_proven: bool | None = None
    attributes: str | None = None
    content_type: str | None = None
    status: str | None = None
    handler: PeerId | None = None
    scope: str | None = None
    file_name: str | None = None
    is_notice: bool | None = None
    is_repeatable: bool | None = None
    rule_number: int | None = None
    actions: str | None = None
    duration_ms: float | None = None
    owner: str | None = None

    @property
    def queued_bytes(self) -> int:
        """Data and texts that may be long. Counts against `queue_bytes_max`."""
        sized = (
            *(self.name, self.group_id, self.topic, self.payload, self.attributes, self.content_type),
            *(self.reason, self.file_name, self.actions, self.owner),
        )
        return sum(map(len, filter(None, sized)))


class RowOrigin(NamedTuple):
    """The source of a row; one object for each recorder."""

    channel: str
    """Channel id in hexadecimal."""
    peer: PeerId


Row = tuple[
    int,  # number of the kind
    int,  # time, microseconds
    RowOrigin,
    PeerId | None,
    int | None,
    int | None,
    int | None,
    PeerId | None,
    int | None,
    int | None,
    OptionalColumns | None,
]
_ROW_COLUMNS = (
    "kind",
    "event_time",
    "origin",
    "author",
    "sequence",
    "last_sequence",
    "hops",
    "neighbor",
    "event_count",
    "size_bytes",
    "extra",
)
_ROW_GETTERS = [(name, itemgetter(place)) for place, name in enumerate(_ROW_COLUMNS)]


class FileSlice(NamedTuple):
    """Rows of one channel and day."""

    rows: Sequence[Row]
    ordinals: Sequence[int]
    row_range: RowRange


def split_by_file(rows: Sequence[Row], ordinal: int) -> dict[Key, FileSlice]:
    """Rows by channel and day. The first row gets this ordinal."""
    times = [row[1] for row in rows]
    first_us, last_us = min(times), max(times)
    channels = {row[2][0] for row in rows}
    if len(channels) == 1 and first_us // DAY_US == last_us // DAY_US:  # nearly always
        key = channels.pop(), first_us // DAY_US
        return {key: FileSlice(rows, range(ordinal, ordinal + len(rows)), RowRange(len(rows), first_us, last_us))}
    positions: dict[Key, list[int]] = {}
    for position, row in enumerate(rows):
        positions.setdefault((row[2][0], row[1] // DAY_US), []).append(position)
    return {key: _file_slice(rows, chosen, ordinal) for key, chosen in positions.items()}


def _file_slice(rows: Sequence[Row], positions: list[int], ordinal: int) -> FileSlice:
    times = [rows[position][1] for position in positions]
    row_range = RowRange(len(positions), min(times), max(times))
    return FileSlice([rows[place] for place in positions], [ordinal + place for place in positions], row_range)


def to_batch(part: FileSlice, channel: str, run_id: str) -> pa.RecordBatch:
    # Column by column: zip(*rows) would create one iterator per row.
    values: dict[str, Any] = {name: list(map(getter, part.rows)) for name, getter in _ROW_GETTERS}
    values["peer"] = [origin.peer for origin in values["origin"]]
    if any(values["extra"]):
        empty = OptionalColumns()
        columns = zip(*(extra or empty for extra in values["extra"]), strict=True)
        values |= zip(OptionalColumns._fields, columns, strict=True)
    converted = {
        "ordinal": pa.array(part.ordinals, pa.int64()),
        "run_id": pa.repeat(pa.scalar(run_id), len(part.rows)),
        "kind": _KIND_NAMES.take(pa.array(values["kind"], pa.int8())),
        "event_time": pa.array(values["event_time"], pa.int64()).cast(TIME),
    }
    schema = file_schema(channel, run_id)
    arrays = []
    for field in schema:
        if field.name in converted:
            arrays.append(converted[field.name])
        elif field.name in values:
            arrays.append(_column(field, values[field.name]))
        else:
            arrays.append(pa.nulls(len(part.rows), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def dropped_rows_batch(dropped: RowRange, ordinal: int, channel: str, run_id: str) -> pa.RecordBatch:
    """The row that reports dropped rows."""
    schema = file_schema(channel, run_id)
    values = {"ordinal": ordinal, "run_id": run_id, "kind": EventKind.ROWS_DROPPED.value, "event_count": dropped.rows}
    times = {"event_time": dropped.first_us, "end_time": dropped.last_us}
    columns = [
        pa.array([times[field.name]], pa.int64()).cast(TIME)
        if field.name in times
        else pa.array([values.get(field.name)], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    """A malicious member can send numbers up to 2^64, which are clamped, and lone surrogates, which are replaced: they
    must not lose the batch."""
    if field.name in ID_COLUMNS:
        return _ids(values)
    try:
        return pa.array(values, field.type)
    except UnicodeEncodeError:
        return pa.array([each and each.encode(errors="replace") for each in values], field.type)
    except (OverflowError, pa.ArrowInvalid):
        return pa.array([None if each is None else min(each, INT64_MAX) for each in values], field.type)


def _ids(values: Sequence[int | None]) -> pa.Array:
    """Ids as text, each formatted once however often it occurs."""
    encoded = pa.array(values, pa.uint64()).dictionary_encode()
    texts = pa.array([f"{peer:016x}" for peer in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)
