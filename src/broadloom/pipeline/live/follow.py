"""`broadloom pipeline run --follow`: keeps live tables of growing tapes up to date.

The driver plans a micro-batch from the files that were added (`broadloom.pipeline.spark_source.read_plan`). One Spark
job reads it and processes each channel (`broadloom.pipeline.live.micro_batch`) with the state of the previous batch.
The offset reached, the state and the tables are committed together, in one manifest: a batch that was interrupted left
nothing behind, and is planned again. Everything is in `OUT/live`: tables, manifests and quarantine.

Spark's own streaming queries are not used: they start a Python process for each query and source, and give it ten
seconds to import Spark, which is too little on a busy machine. Tasks have workers that are forked from a warm one.
"""

import json
import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError
from broadloom.pipeline.analysis.frames import arrow
from broadloom.pipeline.live.micro_batch import COLUMNS, MicroBatchResult, process_micro_batch
from broadloom.pipeline.live.store import BatchManifest, LiveStore
from broadloom.pipeline.live.tables import TABLES
from broadloom.pipeline.live.watermark import WatermarkRules
from broadloom.pipeline.spark_errors import cause_of
from broadloom.pipeline.spark_session import DRIVER_MEMORY, JAVA_ENDED, has_java_ended, session
from broadloom.pipeline.spark_source.offsets import TapeOffset
from broadloom.pipeline.spark_source.options import BATCH_ROWS_MAX
from broadloom.pipeline.spark_source.parquet_files import list_files
from broadloom.pipeline.spark_source.read_plan import ReadPlanner
from broadloom.pipeline.spark_source.row_groups import RowGroupPartition
from broadloom.pipeline.spark_source.row_groups import read as read_row_groups
from broadloom.pipeline.tables import sessions
from broadloom.pipeline.tape_set import TapesNotFoundError
from broadloom.record.arrow_import import pa
from broadloom.record.reader import TABLE_SCHEMA
from broadloom.record.schema import spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("broadloom.pipeline")

POLL_INTERVAL_S = 1.0
"""How often the tapes are polled."""

RETRIES_MAX = 5
"""Of one batch: a worker may crash, and a full disk may be freed."""

RETRY_DELAY_S = 2.0
"""Before the first retry; longer before each further one."""

_RESULT = "result BINARY"


class FollowError(BroadloomError):
    """A batch failed repeatedly, or Spark has ended. The last committed tables are valid."""


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
    # It would print a traceback of every failed batch, which is reported anyway.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    follower = Follower(running, Path(tapes), live_folder(out), rules or WatermarkRules(), chosen, on_progress)
    with follower.store.writing():
        _run(follower, rows_max, once, stop or threading.Event())
        return follower.store.manifest()


def check_tapes(tapes: Path | str) -> None:
    """Fail before Spark is started."""
    if not Path(tapes).is_dir():
        raise TapesNotFoundError(f"no directory of tapes at {tapes}")


class Follower:
    """Processes micro-batches."""

    def __init__(
        self,
        spark: "SparkSession",
        tapes: Path,
        folder: Path,
        rules: WatermarkRules,
        settings: Mapping[str, Any],
        on_progress: Callable[[FollowProgress], None] | None,
    ) -> None:
        self.store = LiveStore(folder.absolute())
        self._quarantine = str(self.store.folder / "quarantine")
        self._planner = ReadPlanner(str(tapes.absolute()), self._quarantine)
        self._spark = spark
        self._rules = rules
        self._sessions = sessions.rule(settings)
        self._on_progress = on_progress

    def files(self) -> set[str]:
        """The files that are there now."""
        return set(list_files(self._planner.folder))

    def process_next(self, rows_max: int, horizon: set[str] | None = None) -> bool:
        """Process and commit the next micro-batch of these files; False if there is none."""
        previous = self.store.manifest()
        start = self.store.offset(previous)
        end = self._planner.next_offset(start, rows_max, horizon)
        if end.to_json() == start.to_json():
            return False
        self._process(previous, self._planner.tasks(start, end), end)
        return True

    def _process(self, previous: BatchManifest | None, tasks: list[RowGroupPartition], end: TapeOffset) -> None:
        began = time.monotonic()
        batch = previous.batch + 1 if previous else 0
        found = self._process_channels(self._read(tasks), self.store.states(previous), batch)
        manifest = BatchManifest(
            batch,
            rows=sum(each.rows for each in found) + (previous.rows if previous else 0),
            excluded_rows=sum(each.excluded_rows for each in found) + (previous.excluded_rows if previous else 0),
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            offset=end.to_json(),
            watermarks=dict(previous.watermarks) if previous else {},
        )
        manifest.watermarks.update({each.channel: each.watermark_us for each in found if each.watermark_us is not None})
        tables = {}
        for name, table in TABLES.items():
            parts = [arrow(each.tables[name]).cast(table.schema) for each in found if name in each.tables]
            tables[name] = pa.concat_tables([table.schema.empty_table(), *parts])
        states = pa.table(
            {
                "channel": pa.array([each.channel for each in found], pa.string()),
                "state": pa.array([each.state for each in found], pa.binary()),
            }
        )
        self.store.commit(manifest, previous, tables, states)
        self.store.remove_stale_files()
        if self._on_progress is not None:
            rows, excluded_rows = sum(each.rows for each in found), sum(each.excluded_rows for each in found)
            self._on_progress(FollowProgress(batch, rows, excluded_rows, len(found), time.monotonic() - began))

    def _read(self, tasks: list[RowGroupPartition]) -> "DataFrame":
        """The events of a batch. Tasks read the files themselves, as Arrow."""
        folder, quarantine = self._planner.folder, self._quarantine
        # Without the constraint that required columns are not null: such rows are counted as excluded.
        schema = pa.schema([pa.field(name, TABLE_SCHEMA.field(name).type) for name in COLUMNS])

        def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for task in batch["task"].to_pylist():
                    yield from read_row_groups(folder, pickle.loads(task), schema, None, quarantine, only_valid=False)

        described = pa.table({"task": pa.array([pickle.dumps(each.ranges) for each in tasks], pa.binary())})
        frame = self._spark.createDataFrame(described, "task BINARY")
        return frame.repartition(max(1, len(tasks))).mapInArrow(load, _columns())

    def _process_channels(self, events: "DataFrame", states: pa.Table, batch: int) -> list[MicroBatchResult]:
        """Process each channel in a task of its own."""
        rules, sessions, now_us = self._rules, self._sessions, time.time_ns() // 1000

        def run(key: tuple[Any, ...], events: pa.Table, states: pa.Table) -> pa.Table:
            channel = key[0].as_py()
            results = []
            if events.num_rows:
                state = states["state"][0].as_py() if states.num_rows else None
                results.append(
                    process_micro_batch(
                        channel, state, events, batch=batch, now_us=now_us, rules=rules, sessions=sessions
                    )
                )
            return pa.table({"result": pa.array([pickle.dumps(each) for each in results], pa.binary())})

        known = self._spark.createDataFrame(states, "channel STRING, state BINARY")
        grouped = events.groupBy("channel").cogroup(known.groupBy("channel"))
        found = grouped.applyInArrow(run, _RESULT).toArrow()["result"].to_pylist()
        return sorted(map(pickle.loads, found), key=lambda result: result.channel)


def _columns() -> str:
    """The columns to read, as Spark DDL."""
    return ", ".join(f"`{name}` {spark_type(TABLE_SCHEMA.field(name).type)}" for name in COLUMNS)


def _run(follower: Follower, rows_max: int, once: bool, stop: threading.Event) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    horizon = follower.files() if once else None
    failures = 0
    while not stop.is_set():
        try:
            is_done = not follower.process_next(rows_max, horizon)
        except (PySparkException, Py4JError, OSError) as problem:
            failures += 1
            if has_java_ended():
                raise FollowError(JAVA_ENDED) from problem
            if failures > RETRIES_MAX:
                raise FollowError(cause_of(problem)) from problem
            log.warning("a batch failed and is repeated: %s", cause_of(problem))
            stop.wait(failures * RETRY_DELAY_S)
            continue
        failures = 0
        if is_done:
            if once:
                return
            stop.wait(POLL_INTERVAL_S)
