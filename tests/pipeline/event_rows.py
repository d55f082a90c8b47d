"""Rows of a tape for tests of single tables. Columns that are not given are null; the channel is `c`."""

from typing import Any

from broadloom.record.arrow_import import pa
from broadloom.record.schema import SCHEMA

EVENTS = pa.schema([*SCHEMA, pa.field("channel", pa.string()), pa.field("event_date", pa.date32())])


def event_table(*rows: dict[str, Any]) -> pa.Table:
    blank = dict.fromkeys(EVENTS.names)
    filled = [
        {**blank, "channel": "c", "run_id": "r", "ordinal": n, **row, "event_date": row["event_time"].date()}
        for n, row in enumerate(rows)
    ]
    return pa.Table.from_pylist(filled, schema=EVENTS)
