"""Builds tables from rows of a tape, with all stages of the engine but without Spark."""

from functools import cache
from tempfile import TemporaryDirectory
from typing import cast

import polars as pl

from broadloom.pipeline.billing.config import load
from broadloom.pipeline.engine.events import encode, plain
from broadloom.pipeline.engine.stages import Job
from broadloom.pipeline.engine.whole import build_channels
from broadloom.pipeline.quarantine import quarantine
from broadloom.pipeline.table import resolve_settings
from broadloom.pipeline.tables import all_tables, with_dependencies
from broadloom.pipeline.tables.messages import gather_messages, merge_messages
from broadloom.record.arrow_import import pa
from broadloom.record.schema import SCHEMA
from tests.pipeline.flooded import START_US, flood_tape, tape_rows
from tests.pipeline.simulated import simulated_history

COLUMNS = [name for name in SCHEMA.names if name != "payload"]


def build_in_memory(
    rows: pa.Table,
    *names: str,
    quarantined: pl.DataFrame | None = None,
    invoices: pl.DataFrame | None = None,
    **settings: str,
) -> dict[str, pl.DataFrame]:
    """These tables and their dependencies; `invoices` are those of the previous build."""
    chosen = resolve_settings(all_tables(), settings)
    tables = with_dependencies(list(names))
    every = frozenset(each.name for each in tables)
    by_channel = cast("pl.DataFrame", pl.from_arrow(rows)).partition_by("channel", as_dict=True)
    events = {str(key[0]): events_of(part.to_arrow()) for key, part in sorted(by_channel.items())}
    with TemporaryDirectory() as folder:
        excluded = quarantine([]) if quarantined is None else quarantined
        billing = load(str(chosen["billing_file"]))
        job = Job(every, every, folder, chosen, billing, excluded, previous_invoices=invoices)
        files = [file for writer in build_channels(job, events) for file in writer.files]
        found = {}
        for each in tables:
            paths = [f"{folder}/{file.table}/{file.name}" for file in files if file.table == each.name]
            empty = cast("pl.DataFrame", pl.from_arrow(each.schema.empty_table()))
            parts = [pl.read_parquet(path, hive_partitioning=False) for path in paths]
            found[each.name] = pl.concat([empty, *parts])
    return found


def events_of(rows: pa.Table) -> pl.DataFrame:
    """The rows of a channel as the engine reads them from files."""
    return encode(rows.select(COLUMNS), COLUMNS)


def messages_of(events: pl.DataFrame) -> pl.DataFrame:
    parts = plain(gather_messages(events)).with_columns(channel=pl.lit("c"))
    return merge_messages(parts)


@cache
def build_all() -> dict[str, pl.DataFrame]:
    """Tables on times, links and threads of three channels, built once for all tests: a simulation with kills and one
    clock, a synthetic flood with several clocks, and a small conversation."""
    rows = pa.concat_tables([simulated_history("kill", 30).rows, flood_tape().rows, conversation_rows()])
    names = ["fabric_snapshots", "repairs", "latency", "redundancy", "link_latency", "thread_positions", "threads"]
    return build_in_memory(rows, *names)


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
