"""Builds tables in memory from rows of a tape."""

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
    """These tables and their dependencies."""
    inputs = TableInputs(spark, spark.createDataFrame(rows), settings, rows=rows.num_rows)
    found: dict[str, pl.DataFrame] = {}
    for each in with_dependencies(list(names)):
        built = each.build(inputs).toArrow()
        assert built.schema.names == each.schema.names
        inputs.tables[each.name] = spark.createDataFrame(built)
        frame = pl.from_arrow(built)
        assert isinstance(frame, pl.DataFrame)
        found[each.name] = frame
    return found


def build_all(spark: "SparkSession") -> dict[str, pl.DataFrame]:
    """Tables on times, links and threads of three channels, built once for all tests: a simulation with kills and one
    clock, a synthetic flood with several clocks, and a small conversation."""
    if not _cache:
        rows = pa.concat_tables([simulated_history("kill", 30).rows, flood_tape().rows, conversation_rows()])
        names = ["fabric_snapshots", "repairs", "latency", "redundancy", "link_latency", "thread_positions", "threads"]
        _cache.append(build_in_memory(spark, rows, *names))
    return _cache[0]


def rows_of_kill(table: pl.DataFrame, *order: str) -> list[tuple]:
    """The rows of the simulated channel, in this order."""
    channel = simulated_history("kill", 30).rows["channel"][0].as_py()
    return table.filter(pl.col("channel") == channel).sort(order).rows()


CONVERSATION_CHANNEL = "00aa00aa00aa00aa"


def conversation_rows() -> pa.Table:
    """A message with two replies, a reply to the first of them, and a message without replies."""
    parents = {1: None, 2: 1, 3: 2, 4: 1, 5: None}
    return tape_rows(
        [
            {
                "kind": "sent",
                "channel": CONVERSATION_CHANNEL,
                "peer": _participant(number),
                "author": _participant(number),
                "sequence": number,
            }
            | {"event_time": START_US + number * 1_000_000, "group_id": "tea", "run_id": "talk"}
            | ({"parent_author": _participant(parent), "parent_sequence": parent} if parent else {})
            for number, parent in parents.items()
        ]
    )


def _participant(number: int) -> str:
    return f"{number % 3:016x}"
