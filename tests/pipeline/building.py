"""Tables built in memory, one after the other, from rows of a tape."""

from typing import TYPE_CHECKING

import polars as pl

from broadloom.pipeline.table import TableInputs
from broadloom.pipeline.tables import with_dependencies
from broadloom.record.arrow_import import pa
from tests.pipeline.flooded import START_US, flood_tape, tape_rows
from tests.pipeline.simulated import simulated_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_cache: list[dict[str, pl.DataFrame]] = []


def build_in_memory(spark: "SparkSession", rows: pa.Table, *names: str, **settings: object) -> dict[str, pl.DataFrame]:
    """These tables, and all that they need."""
    inputs = TableInputs(spark, spark.createDataFrame(rows), settings, rows=rows.num_rows)
    found: dict[str, pl.DataFrame] = {}
    for each in with_dependencies(list(names)):
        made = each.build(inputs).toArrow()
        assert made.schema.names == each.schema.names
        inputs.tables[each.name] = spark.createDataFrame(made)
        frame = pl.from_arrow(made)
        assert isinstance(frame, pl.DataFrame)
        found[each.name] = frame
    return found


def build_all(spark: "SparkSession") -> dict[str, pl.DataFrame]:
    """The tables of times, links and conversations over three channels, built once for all tests: a simulation with
    kills, by one clock; a made flood, by several; and a small talk."""
    if not _cache:
        rows = pa.concat_tables([simulated_history("kill", 30).rows, flood_tape().rows, conversation_rows()])
        names = ["fabric", "repairs", "latency", "redundancy", "slowest", "places", "threads"]
        _cache.append(build_in_memory(spark, rows, *names))
    return _cache[0]


def rows_of_kill(table: pl.DataFrame, *order: str) -> list[tuple]:
    """The rows of the simulated channel, in this order."""
    channel = simulated_history("kill", 30).rows["channel"][0].as_py()
    return table.filter(pl.col("channel") == channel).sort(order).rows()


CONVERSATION_CHANNEL = "00aa00aa00aa00aa"


def conversation_rows() -> pa.Table:
    """One says something; two answer that, a fourth message answers the second; and one has no answer."""
    parents = {1: None, 2: 1, 3: 2, 4: 1, 5: None}
    return tape_rows(
        [
            {
                "kind": "sent",
                "channel": CONVERSATION_CHANNEL,
                "observer": _participant(number),
                "author": _participant(number),
                "sequence": number,
            }
            | {"time": START_US + number * 1_000_000, "group": "tea", "run": "talk"}
            | ({"parent_author": _participant(parent), "parent_sequence": parent} if parent else {})
            for number, parent in parents.items()
        ]
    )


def _participant(number: int) -> str:
    return f"{number % 3:016x}"
