"""A row on its way from the channel to the file: a plain tuple, turned into columns by the writer.

The rule: on the channel's side a row costs one tuple. Names become text, and tuples become columns, on the writer's
side, many at once. What most rows lack stands apart, in `Extra`.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple

from weft.record.arrow import pa
from weft.record.lost import Key, Tally
from weft.record.schema import INT64_MAX, TIME, Kind, file_schema
from weft.wire import PeerId

DAY_US = 86_400_000_000

NUMBERS = {kind: number for number, kind in enumerate(Kind)}
"""Kinds inside a tuple. Never written, so they may change from version to version."""
_NAMES = pa.array([kind.value for kind in Kind])


class Extra(NamedTuple):
    """What few rows have."""

    address: str | None = None
    why: str | None = None
    name: str | None = None
    group: str | None = None
    parent_author: PeerId | None = None
    parent_sequence: int | None = None
    topic: str | None = None
    payload: bytes | None = None
    member: int | None = None
    number: int | None = None
    parent_member: int | None = None
    parent_number: int | None = None
    held_bytes: int = 0
    """Counted against the queue's limit in bytes."""


class Origin(NamedTuple):
    """Where a row comes from: made once for each observer."""

    channel: str
    """Its id, in hex."""
    observer: PeerId


Row = tuple[
    int,  # number of the kind
    int,  # time, microseconds
    Origin,
    PeerId | None,  # author
    int | None,  # sequence
    int | None,  # last
    int | None,  # hops
    PeerId | None,  # neighbour
    int | None,  # count
    int | None,  # size
    Extra | None,
]


_PLACES = [itemgetter(place) for place in range(11)]


class Part(NamedTuple):
    """Rows of one channel and day."""

    rows: Sequence[Row]
    ordinals: Sequence[int]
    tally: Tally


def by_file(rows: Sequence[Row], ordinal: int) -> dict[Key, Part]:
    """Rows by the file that they belong to. The first has this ordinal."""
    times = [row[1] for row in rows]
    first_us, last_us = min(times), max(times)
    channels = {row[2][0] for row in rows}
    if len(channels) == 1 and first_us // DAY_US == last_us // DAY_US:  # nearly always
        key = channels.pop(), first_us // DAY_US
        return {key: Part(rows, range(ordinal, ordinal + len(rows)), Tally(len(rows), first_us, last_us))}
    places: dict[Key, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault((row[2][0], row[1] // DAY_US), []).append(place)
    return {key: _part(rows, chosen, ordinal) for key, chosen in places.items()}


def _part(rows: Sequence[Row], chosen: list[int], ordinal: int) -> Part:
    times = [rows[place][1] for place in chosen]
    tally = Tally(len(chosen), min(times), max(times))
    return Part([rows[place] for place in chosen], [ordinal + place for place in chosen], tally)


def to_batch(part: Part, channel: str, run: str) -> pa.RecordBatch:
    """Columns of the schema."""
    rows = part.rows
    # Column by column: zip(*rows) would make as many iterators as there are rows.
    kinds, times, origins, authors, sequences, lasts, hops, neighbours, counts, sizes, extras = (
        list(map(place, rows)) for place in _PLACES
    )
    observers = [origin[1] for origin in origins]
    count = len(rows)
    addresses, whys, names, groups, parents, parent_sequences, topics, payloads, *identities = _spread(extras)
    members, numbers, parent_members, parent_numbers = identities
    columns = {
        "ordinal": pa.array(part.ordinals, pa.int64()),
        "run": pa.repeat(pa.scalar(run), count),
        "kind": _NAMES.take(pa.array(kinds, pa.int8())),
        "time": pa.array(times, pa.int64()).cast(TIME),
        "until": pa.nulls(count, TIME),
        "observer": _ids(observers),
        "author": _ids(authors),
        "sequence": _int64(sequences),
        "last": _int64(lasts),
        "hops": _int64(hops),
        "neighbour": _ids(neighbours),
        "address": _text(addresses, count),
        "why": _text(whys, count),
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
    schema = file_schema(channel, run)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def gap_batch(lost: Tally, ordinal: int, channel: str, run: str) -> pa.RecordBatch:
    """The row that says what is lacking."""
    schema = file_schema(channel, run)
    told = {"ordinal": ordinal, "run": run, "kind": Kind.GAP.value, "count": lost.rows}
    times = {"time": lost.first_us, "until": lost.last_us}
    columns = [
        pa.array([times[field.name]], pa.int64()).cast(TIME)
        if field.name in times
        else pa.array([told.get(field.name)], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _spread(extras: Sequence[Extra | None]) -> Iterable[Sequence[object]]:
    """Columns of what few rows have; empty ones if none has anything."""
    if not any(extras):
        return repeat((), len(Extra._fields) - 1)
    nothing = Extra()
    return list(zip(*(extra or nothing for extra in extras), strict=True))[:-1]


def _ids(column: Sequence[object], count: int = 0) -> pa.Array:
    """Ids as text. Each is put into words once, however often it occurs. If no row has one, so many nulls."""
    if not column:
        return pa.nulls(count, pa.string())
    encoded = pa.array(column, pa.uint64()).dictionary_encode()
    words = pa.array([f"{peer:016x}" for peer in encoded.dictionary.to_pylist()], pa.string())
    return words.take(encoded.indices)


def _int64(column: Sequence[object], count: int = 0) -> pa.Array:
    """Numbers of the wire may go up to 2^64 if a member talks nonsense: those become the largest there is."""
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
    except UnicodeEncodeError:  # half a character, out of somebody's message: no reason to lose the batch
        return pa.array([None if each is None else str(each).encode(errors="replace") for each in column], pa.string())
