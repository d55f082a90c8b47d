"""Rows of a tape for tests of single tables: what is not given is null, and the channel is `c`."""

from typing import Any

from weft.pipeline.table import Inputs, Table, resolved
from weft.record.arrow import pa
from weft.record.schema import SCHEMA

EVENTS = pa.schema([*SCHEMA, pa.field("channel", pa.string()), pa.field("day", pa.date32())])


def event_table(*rows: dict[str, Any]) -> pa.Table:
    blank = dict.fromkeys(EVENTS.names)
    filled = [
        {**blank, "channel": "c", "run": "r", "ordinal": n, **row, "day": row["time"].date()}
        for n, row in enumerate(rows)
    ]
    return pa.Table.from_pylist(filled, schema=EVENTS)


def inputs_of(spark, events: pa.Table, *tables: Table, **chosen: str) -> Inputs:
    """Events, and all tables built that are given, in this order."""
    inputs = Inputs(spark, spark.createDataFrame(events), resolved(tables, chosen), rows=len(events))
    for table in tables:
        # As the job does: a table is read back, not reckoned again by the next one.
        inputs.tables[table.name] = spark.createDataFrame(table.build(inputs).toArrow())
    return inputs
