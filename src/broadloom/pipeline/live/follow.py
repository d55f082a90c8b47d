"""`broadloom pipeline run --follow`: keeps live tables of growing tapes up to date.

One streaming query reads the tapes (`broadloom.pipeline.spark_source`). For each micro-batch one Spark job processes
each channel (`broadloom.pipeline.live.micro_batch`) with the state of the previous batch. State and tables are
committed together under the number of the batch, so a batch that is repeated after a crash changes nothing. Everything
is in `OUT/live`: checkpoint, tables and quarantine.
"""

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError
from broadloom.pipeline.live.micro_batch import COLUMNS, MicroBatchResult, process_micro_batch
from broadloom.pipeline.live.state_codec import pack, unpack
from broadloom.pipeline.live.store import BatchManifest, LiveStore
from broadloom.pipeline.live.tables import TABLES
from broadloom.pipeline.live.watermark import WatermarkRules
from broadloom.pipeline.spark_session import DRIVER_MEMORY, session
from broadloom.pipeline.spark_source import register
from broadloom.pipeline.spark_source.options import BATCH_ROWS_MAX
from broadloom.pipeline.tables import sessions
from broadloom.pipeline.tape_set import TapesNotFoundError
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("broadloom.pipeline")

POLL_INTERVAL_S = 1.0
"""How often the tapes are polled."""

RESTARTS_MAX = 5
"""In a row, without a committed batch in between."""

KNOWN_FAULTS = ("java.io.OptionalDataException",)
"""Faults of Spark itself, seen now and then at the start of a query. A restart loses nothing."""

_RESULT = "channel STRING, state BINARY, tables BINARY, row_count BIGINT, excluded_count BIGINT, watermark_us BIGINT"


class FollowError(BroadloomError):
    """The streaming query failed."""


@dataclass(frozen=True, slots=True)
class FollowProgress:
    """One committed batch."""

    batch: int
    rows: int
    excluded_rows: int
    channels: int
    seconds: float


def live_folder(out: Path | str) -> Path:
    return Path(out) / "live"


def read(out: Path | str, table: str) -> pa.Table:
    """Read a live table, without Spark."""
    if table not in TABLES:
        raise BroadloomError(f"unknown live table {table!r}; live tables: {', '.join(TABLES)}")
    return LiveStore(live_folder(out)).read(table)


def quarantined_files(out: Path | str) -> list[dict[str, str]]:
    """Files that could not be read: path, reason and detail."""
    found = sorted((live_folder(out) / "quarantine").glob("*.json"))
    return sorted((json.loads(path.read_text()) for path in found), key=lambda each: str(each["path"]))


def follow(
    tapes: Path | str,
    out: Path | str,
    master: str | None = None,
    *,
    memory: str = DRIVER_MEMORY,
    rules: WatermarkRules | None = None,
    settings: Mapping[str, Any] | None = None,
    rows_max: int = BATCH_ROWS_MAX,
    once: bool = False,
    stop: threading.Event | None = None,
    on_progress: Callable[[FollowProgress], None] | None = None,
    spark: "SparkSession | None" = None,
) -> BatchManifest | None:
    """Follow tapes until `stop` is set, or with `once` until everything available now is read.

    `settings` are those of the table `sessions`; `spark` is a running session. Returns the last manifest, which has the
    counts.
    """
    check_tapes(tapes)
    chosen = {each.name: each.default for each in sessions.SETTINGS} | dict(settings or {})
    running = spark or session(master, name="broadloom follow", memory=memory)
    register(running)
    # It would print a traceback of every failed batch, which is reported anyway.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    follower = Follower(running, Path(tapes), live_folder(out), rules or WatermarkRules(), chosen, on_progress)
    _run_supervised(follower, rows_max, once, stop or threading.Event())
    return follower.store.manifest()


def check_tapes(tapes: Path | str) -> None:
    """Fail before Spark is started."""
    if not Path(tapes).is_dir():
        raise TapesNotFoundError(f"no folder of tapes at {tapes}")


class Follower:
    """Processes the micro-batches of a streaming query."""

    def __init__(
        self,
        spark: "SparkSession",
        tapes: Path,
        folder: Path,
        rules: WatermarkRules,
        settings: Mapping[str, Any],
        on_progress: Callable[[FollowProgress], None] | None,
    ) -> None:
        self.tapes = tapes.absolute()
        self.folder = folder.absolute()
        self.store = LiveStore(self.folder)
        self.batches = 0
        """Batches committed by this object."""
        self._spark = spark
        self._rules = rules
        self._sessions = sessions.rule(settings)
        self._on_progress = on_progress

    def start(self, rows_max: int, once: bool) -> "StreamingQuery":
        from pyspark.sql import functions as F  # noqa: N812

        self.folder.mkdir(parents=True, exist_ok=True)
        self.store.remove_stale_files()
        events = (
            self._spark.readStream.format("broadloom")
            .option("rows_max", rows_max)
            .option("quarantine", str(self.folder / "quarantine"))
            .schema(_columns())
            .load(str(self.tapes))
            .select(*(F.col(name) for name in COLUMNS))
        )
        writer = events.writeStream.foreachBatch(self.on_batch).option(
            "checkpointLocation", str(self.folder / "checkpoint")
        )
        trigger = (
            writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{POLL_INTERVAL_S} seconds")
        )
        return trigger.start()

    def on_batch(self, events: "DataFrame", batch: int) -> None:
        """Process a micro-batch. May be called again with the same number after a crash."""
        if self.store.is_committed(batch):
            return
        began = time.monotonic()
        previous = self.store.manifest()
        found = self._process_channels(events, self.store.states(previous), batch)
        manifest = BatchManifest(
            batch,
            rows=sum(each.rows for each in found) + (previous.rows if previous else 0),
            excluded_rows=sum(each.excluded_rows for each in found) + (previous.excluded_rows if previous else 0),
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            watermarks=dict(previous.watermarks) if previous else {},
        )
        manifest.watermarks.update({each.channel: each.watermark_us for each in found if each.watermark_us is not None})
        tables = {}
        for name, table in TABLES.items():
            parts = [each.tables[name] for each in found if name in each.tables]
            tables[name] = pa.concat_tables([table.schema.empty_table(), *parts])
        states = pa.table(
            {
                "channel": pa.array([each.channel for each in found], pa.string()),
                "state": pa.array([each.state for each in found], pa.binary()),
            }
        )
        self.store.commit(manifest, previous, tables, states)
        self.store.remove_stale_files()
        self.batches += 1
        if self._on_progress is not None:
            rows, excluded_rows = sum(each.rows for each in found), sum(each.excluded_rows for each in found)
            self._on_progress(FollowProgress(batch, rows, excluded_rows, len(found), time.monotonic() - began))

    def _process_channels(self, events: "DataFrame", states: pa.Table, batch: int) -> list[MicroBatchResult]:
        """Process each channel in a task of its own."""
        rules, sessions, now_us = self._rules, self._sessions, time.time_ns() // 1000

        def run(key: tuple[Any, ...], events: pa.Table, states: pa.Table) -> pa.Table:
            channel = key[0].as_py()
            if not events.num_rows:
                return _pack_results([])
            state = states["state"][0].as_py() if states.num_rows else None
            return _pack_results(
                [
                    process_micro_batch(
                        channel, state, events, batch=batch, now_us=now_us, rules=rules, sessions=sessions
                    )
                ]
            )

        known = self._spark.createDataFrame(states, "channel STRING, state BINARY")
        grouped = events.groupBy("channel").cogroup(known.groupBy("channel"))
        return _unpack_results(grouped.applyInArrow(run, _RESULT).toArrow())


def _columns() -> str:
    """The columns to read, as Spark DDL."""
    from broadloom.record.schema import COLUMNS as ON_TAPE

    kinds = {each.name: each.spark_type for each in ON_TAPE} | {"channel": "STRING"}
    return ", ".join(f"`{name}` {kinds[name]}" for name in COLUMNS)


def _pack_results(results: list[MicroBatchResult]) -> pa.Table:
    import polars as pl

    tables = [{name: pl.DataFrame(table) for name, table in each.tables.items()} for each in results]
    return pa.table(
        {
            "channel": pa.array([each.channel for each in results], pa.string()),
            "state": pa.array([each.state for each in results], pa.binary()),
            "tables": pa.array([pack(each) for each in tables], pa.binary()),
            "row_count": pa.array([each.rows for each in results], pa.int64()),
            "excluded_count": pa.array([each.excluded_rows for each in results], pa.int64()),
            "watermark_us": pa.array([each.watermark_us for each in results], pa.int64()),
        }
    )


def _unpack_results(table: pa.Table) -> list[MicroBatchResult]:
    found = []
    for each in table.to_pylist():
        frames = unpack(each["tables"])
        tables = {name: frame.to_arrow().cast(TABLES[name].schema) for name, frame in frames.items()}
        counts = each["row_count"], each["excluded_count"], each["watermark_us"]
        found.append(MicroBatchResult(each["channel"], *counts, each["state"], tables))
    return sorted(found, key=lambda result: result.channel)


def _run_supervised(follower: Follower, rows_max: int, once: bool, stop: threading.Event) -> None:
    """Run the query; restart it after a known harmless fault."""
    from pyspark.errors import StreamingQueryException

    restarts = 0
    while not stop.is_set():
        done_before = follower.batches
        query = follower.start(rows_max, once)
        try:
            while not query.awaitTermination(1) and not stop.is_set():
                pass
            if once or stop.is_set():
                return
        except StreamingQueryException as problem:
            restarts = restarts + 1 if follower.batches == done_before else 1
            if not any(fault in str(problem) for fault in KNOWN_FAULTS) or restarts > RESTARTS_MAX:
                raise FollowError(_root_cause(problem)) from problem
            log.warning("restarting the stream after a fault of Spark: %s", _root_cause(problem))
        finally:
            query.stop()


def _root_cause(problem: Exception) -> str:
    """The message of the innermost Python exception, if there is one; Spark wraps it in many lines."""
    text = str(problem)
    _, traceback, inner = text.rpartition("Traceback (most recent call last):")
    found = re.search(r"^\w[\w.]*: (.+)$", inner, re.MULTILINE) if traceback else None
    return found[1] if found else text.splitlines()[0]
