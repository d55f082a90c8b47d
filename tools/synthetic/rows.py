"""Rows of a synthetic channel as integer columns, and writing them to files as the recorder does.

Text is an index into a pool and is written as a Parquet dictionary.
"""

from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from broadloom.protocol.events import LinkDownReason
from broadloom.record.arrow_import import pa, pq
from broadloom.record.schema import CHANNEL_DIGITS, COLUMNS, DAY_US, SCHEMA, TIME, EventKind, file_schema

GROUP_ROWS = 250_000
KINDS = [kind.value for kind in EventKind]

Ints = NDArray[np.int64]

_NUMBERS = (
    "sequence",
    "last_sequence",
    "hops",
    "event_count",
    "size_bytes",
    "parent_sequence",
    "member_sequence",
    "parent_member_sequence",
)
_IDS = ("peer", "author", "neighbor", "parent_author", "member", "parent_member")
_TEXTS = (*_IDS, "address", "reason", "name", "group_id", "topic")


class TextPools:
    """The texts that rows refer to by index."""

    REASONS = tuple(
        each.value
        for each in (
            LinkDownReason.REWIRED,
            LinkDownReason.CONNECTION_LOST,
            LinkDownReason.PEER_LEFT,
            LinkDownReason.LOCAL_LEAVE,
        )
    )

    def __init__(self, ids: list[str], names: list[str], groups: int, topics: int) -> None:
        self._peers = len(ids)
        names = [*names, *(f"ad-{number:03d}" for number in range(1000))]
        addresses = [f"10.{peer >> 16 & 255}.{peer >> 8 & 255}.{peer & 255}:4000" for peer in range(len(ids))]
        self.texts: dict[str, pa.Array] = dict.fromkeys(_IDS, pa.array(ids, pa.string()))
        self.texts["reason"] = pa.array(self.REASONS, pa.string())
        self.texts["name"] = pa.array(names, pa.string())
        self.texts["group_id"] = pa.array([f"group-{number}" for number in range(max(groups, 1))], pa.string())
        self.texts["topic"] = pa.array([f"topic-{number}" for number in range(max(topics, 1))], pa.string())
        self.texts["address"] = pa.array(addresses, pa.string())

    def ad(self, number: int) -> int:
        """Index among the names."""
        return self._peers + number


class SyntheticRows:
    def __init__(self) -> None:
        self._parts: list[tuple[int, dict[str, Ints]]] = []

    def add(self, kind: EventKind, time_us: Ints, peer: Ints, **columns: Ints | None) -> None:
        """Columns that are not given, and negative values, are null."""
        part = {
            "event_time": time_us,
            "peer": peer,
            **{name: each for name, each in columns.items() if each is not None},
        }
        self._parts.append((KINDS.index(kind.value), part))

    def __len__(self) -> int:
        return sum(len(part["event_time"]) for _, part in self._parts)

    def kinds(self) -> Ints:
        return np.concatenate([np.full(len(part["event_time"]), kind, np.int8) for kind, part in self._parts])

    def column(self, name: str) -> Ints | None:
        """None if no row has the column."""
        if not any(name in part for _, part in self._parts):
            return None
        return np.concatenate(
            [part.get(name, np.full(len(part["event_time"]), -1, np.int64)) for _, part in self._parts]
        )


def write(
    folder: Path,
    channel: str,
    runs: tuple[str, ...],
    rows: SyntheticRows,
    pools: TextPools,
    machine: Ints,
    skew_us: Ints,
    begin: datetime,
) -> None:
    """One file per run and day. Ordinals follow the true time, event times the clock of the machine."""
    begin_us = int((begin - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)
    kinds, peer, true_us = rows.kinds(), rows.column("peer"), rows.column("event_time")
    assert peer is not None
    assert true_us is not None
    run = machine[peer]
    # In the same microsecond, joins and links come before messages: the order of kinds.
    order = np.argsort((run << 48) + (true_us << 4) + kinds)
    run, shown_us = run[order], begin_us + (true_us + skew_us[run])[order]
    places = np.arange(len(order))
    starts = np.searchsorted(run, np.arange(len(runs)))
    ordinal = places - starts[run]
    days = shown_us // DAY_US
    columns = {name: rows.column(name) for name in (*_NUMBERS, *_TEXTS)}
    for number, name in enumerate(runs):
        mine = slice(starts[number], starts[number + 1] if number + 1 < len(runs) else len(order))
        for count, day in enumerate(np.unique(days[mine])):
            chosen = mine if (days[mine] == day).all() else np.flatnonzero((run == number) & (days == day))
            place = order[chosen]
            arrays = {
                "ordinal": pa.array(ordinal[chosen]),
                "run_id": _repeated(name, len(place)),
                "kind": pa.DictionaryArray.from_arrays(pa.array(kinds[place]), pa.array(KINDS)),
                "event_time": pa.array(shown_us[chosen]).cast(TIME),
            }
            for each in (*_NUMBERS, *_TEXTS):
                values = columns[each]
                arrays[each] = _column(None if values is None else values[place], pools.texts.get(each), len(place))
            arrays |= {each.name: pa.nulls(len(place), each.type) for each in SCHEMA if each.name not in arrays}
            _write_file(folder, channel, name, count + 1, date.fromordinal(_EPOCH + int(day)), arrays)


_EPOCH = date(1970, 1, 1).toordinal()


def _repeated(text: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array([text]))


def _column(values: Ints | None, texts: pa.Array | None, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, pa.int64() if texts is None else pa.string())
    if texts is None:
        return pa.array(values, mask=values < 0)
    return pa.DictionaryArray.from_arrays(pa.array(values.astype(np.int32), mask=values < 0), texts)


def _write_file(folder: Path, channel: str, run: str, number: int, day: date, arrays: dict[str, pa.Array]) -> None:
    place = folder / f"channel={channel[:CHANNEL_DIGITS]}" / f"event_date={day.isoformat()}"
    place.mkdir(parents=True, exist_ok=True)
    about = file_schema(channel, run).metadata
    fields = [pa.field(each.name, arrays[each.name].type, nullable=not each.is_required) for each in COLUMNS]
    table = pa.Table.from_arrays([arrays[each.name] for each in COLUMNS], schema=pa.schema(fields, about))
    deltas = dict.fromkeys(("ordinal", "event_time", "sequence"), "DELTA_BINARY_PACKED")
    hidden = place / f".{run}-{number:06d}.parquet"
    # Without Arrow's copy of the schema, readers see text, as documented, and not dictionaries.
    with pq.ParquetWriter(
        hidden,
        table.schema,
        compression="zstd",
        use_dictionary=[each for each in SCHEMA.names if each not in deltas and each != "payload"],
        column_encoding=deltas,
        write_page_checksum=True,
        store_schema=False,
    ) as file:
        file.write_table(table, row_group_size=GROUP_ROWS)
        file.add_key_value_metadata(about)
    hidden.rename(hidden.with_name(hidden.name[1:]))
