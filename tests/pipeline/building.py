"""Tables built in memory, one after the other, from rows of a tape."""

from typing import TYPE_CHECKING

import polars as pl

from tests.pipeline.flooded import BEGINS_US, as_rows, flooded
from tests.pipeline.simulated import simulated
from weft.pipeline.table import Inputs
from weft.pipeline.tables import with_needs
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_held: list[dict[str, pl.DataFrame]] = []


def built(spark: "SparkSession", rows: pa.Table, *names: str, **settings: object) -> dict[str, pl.DataFrame]:
    """These tables, and all that they need."""
    inputs = Inputs(spark, spark.createDataFrame(rows), settings, rows=rows.num_rows)
    found: dict[str, pl.DataFrame] = {}
    for each in with_needs(list(names)):
        made = each.build(inputs).toArrow()
        assert made.schema.names == each.schema.names
        inputs.tables[each.name] = spark.createDataFrame(made)
        frame = pl.from_arrow(made)
        assert isinstance(frame, pl.DataFrame)
        found[each.name] = frame
    return found


def everything(spark: "SparkSession") -> dict[str, pl.DataFrame]:
    """The tables of times, links and conversations over three channels, built once for all tests: a simulation with
    kills, by one clock; a made flood, by several; and a small talk."""
    if not _held:
        rows = pa.concat_tables([simulated("kill", 30).rows, flooded().rows, talk()])
        names = ["fabric", "repairs", "latency", "redundancy", "slowest", "places", "threads"]
        _held.append(built(spark, rows, *names))
    return _held[0]


def of_kill(table: pl.DataFrame, *order: str) -> list[tuple]:
    """The rows of the simulated channel, in this order."""
    channel = simulated("kill", 30).rows["channel"][0].as_py()
    return table.filter(pl.col("channel") == channel).sort(order).rows()


TALK = "00aa00aa00aa00aa"


def talk() -> pa.Table:
    """One says something; two answer that, a fourth message answers the second; and one has no answer."""
    parents = {1: None, 2: 1, 3: 2, 4: 1, 5: None}
    return as_rows(
        [
            {
                "kind": "sent",
                "channel": TALK,
                "observer": _talker(number),
                "author": _talker(number),
                "sequence": number,
            }
            | {"time": BEGINS_US + number * 1_000_000, "group": "tea", "run": "talk"}
            | ({"parent_author": _talker(parent), "parent_sequence": parent} if parent else {})
            for number, parent in parents.items()
        ]
    )


def _talker(number: int) -> str:
    return f"{number % 3:016x}"
