"""Rows on their way to the file: plain tuples, converted to Arrow columns by the writer.

In the thread of the channel, a row costs one tuple. The writer formats ids and builds columns, many rows at a time.
Columns that most rows do not have are kept apart, in `OptionalColumns`.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple

from broadloom.record.arrow_import import pa
from broadloom.record.dropped_rows import Key, RowRange
from broadloom.record.schema import INT64_MAX, TIME, EventKind, file_schema
from broadloom.wire import PeerId

DAY_US = 86_400_000_000

KIND_NUMBERS = {kind: number for number, kind in enumerate(EventKind)}
"""Kinds inside a tuple. Never written to disk."""
_KIND_NAMES = pa.array([kind.value for kind in EventKind])


class OptionalColumns(NamedTuple):
    """Columns that few rows have."""

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
    queued_bytes: int = 0
    """Counts against `queue_bytes_max`."""


class RowOrigin(NamedTuple):
    """The source of a row; one object for each recorder."""

    channel: str
    """Channel id in hexadecimal."""
    peer: PeerId


Row = tuple[
    int,  # number of the kind
    int,  # time, microseconds
    RowOrigin,
    PeerId | None,  # author
    int | None,  # sequence
    int | None,  # last
    int | None,  # hops
    PeerId | None,  # neighbour
    int | None,  # count
    int | None,  # size
    OptionalColumns | None,
]


_ROW_GETTERS = [itemgetter(place) for place in range(11)]


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
    rows = part.rows
    # Column by column: zip(*rows) would create one iterator per row.
    kinds, times, origins, authors, sequences, lasts, hops, neighbors, counts, sizes, extras = (
        list(map(position, rows)) for position in _ROW_GETTERS
    )
    observers = [origin[1] for origin in origins]
    count = len(rows)
    addresses, reasons, names, groups, parents, parent_sequences, topics, payloads, *identities = _optional_columns(
        extras
    )
    members, numbers, parent_members, parent_numbers = identities
    columns = {
        "ordinal": pa.array(part.ordinals, pa.int64()),
        "run": pa.repeat(pa.scalar(run_id), count),
        "kind": _KIND_NAMES.take(pa.array(kinds, pa.int8())),
        "time": pa.array(times, pa.int64()).cast(TIME),
        "until": pa.nulls(count, TIME),
        "observer": _ids(observers),
        "author": _ids(authors),
        "sequence": _int64(sequences),
        "last": _int64(lasts),
        "hops": _int64(hops),
        "neighbour": _ids(neighbors),
        "address": _text(addresses, count),
        "why": _text(reasons, count),
        "count": _int64(counts),
        "size": _int64(sizes),
        "name": _text(names, count),
        "group": _text(groups, count),
        "parent_author": _ids(parents, count),
        "parent_sequence": _int64(parent_sequences, count),
        "topic": _text(topics, count),
        "payload": pa.array(payloads, pa.binary()) if payloads else pa.nulls(count, pa.binary()),
        "member": _ids(members, count),
        "number": _int64(numbers, count),
        "parent_member": _ids(parent_members, count),
        "parent_number": _int64(parent_numbers, count),
    }
    schema = file_schema(channel, run_id)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def dropped_rows_batch(dropped: RowRange, ordinal: int, channel: str, run_id: str) -> pa.RecordBatch:
    """The row that reports dropped rows."""
    schema = file_schema(channel, run_id)
    values = {"ordinal": ordinal, "run": run_id, "kind": EventKind.ROWS_DROPPED.value, "count": dropped.rows}
    times = {"time": dropped.first_us, "until": dropped.last_us}
    columns = [
        pa.array([times[field.name]], pa.int64()).cast(TIME)
        if field.name in times
        else pa.array([values.get(field.name)], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _optional_columns(extras: Sequence[OptionalColumns | None]) -> Iterable[Sequence[object]]:
    """The optional columns; empty ones if no row has any."""
    if not any(extras):
        return repeat((), len(OptionalColumns._fields) - 1)
    empty = OptionalColumns()
    return list(zip(*(extra or empty for extra in extras), strict=True))[:-1]


def _ids(column: Sequence[object], count: int = 0) -> pa.Array:
    """Ids as text, each formatted once however often it occurs; `count` nulls for an empty column."""
    if not column:
        return pa.nulls(count, pa.string())
    encoded = pa.array(column, pa.uint64()).dictionary_encode()
    texts = pa.array([f"{peer:016x}" for peer in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def _int64(column: Sequence[object], count: int = 0) -> pa.Array:
    """A malicious member can send numbers up to 2^64; they are clamped."""
    if not column:
        return pa.nulls(count, pa.int64())
    try:
        return pa.array(column, pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        return pa.array([None if each is None else min(each, INT64_MAX) for each in column], pa.int64())  # type: ignore[call-overload]


def _text(column: Sequence[object], count: int) -> pa.Array:
    if not column:
        return pa.nulls(count, pa.string())
    try:
        return pa.array(column, pa.string())
    except UnicodeEncodeError:  # a lone surrogate from a payload must not lose the batch
        return pa.array([None if each is None else str(each).encode(errors="replace") for each in column], pa.string())
