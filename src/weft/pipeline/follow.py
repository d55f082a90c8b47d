"""`weft pipeline run --follow`: the live tables of tapes that grow, kept up to date until it is stopped.

One streaming query reads the tapes (`weft.pipeline.source`), and for each micro-batch one Spark job does the step of
each channel (`weft.pipeline.live.step`) beside the state that the last one left. State and tables are written together
under the number of the batch, so a batch that is repeated after a crash changes nothing a second time. Everything is in
`OUT/live`: the checkpoint, the tables, and what was set aside.
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

from weft.errors import WeftError
from weft.pipeline.live.contract import TABLES
from weft.pipeline.live.packing import pack, unpack
from weft.pipeline.live.step import COLUMNS, Result, step
from weft.pipeline.live.store import Manifest, Store
from weft.pipeline.live.tide import Rules
from weft.pipeline.session import MEMORY, session
from weft.pipeline.source import register
from weft.pipeline.source.options import BATCH_ROWS_MAX
from weft.pipeline.tables import sessions
from weft.pipeline.tapes import NoTapes
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("weft.pipeline")

LOOK_S = 1.0
"""How often the tapes are looked at."""

RESTARTS_MAX = 5
"""In a row, without a batch between them."""

KNOWN_FAULTS = ("java.io.OptionalDataException",)
"""Of Spark itself, seen now and then when a query starts cold. Nothing is lost by starting it again."""

_RESULT = "channel STRING, state BINARY, tables BINARY, rows BIGINT, aside_rows BIGINT, watermark BIGINT"


class FollowingFailed(WeftError):
    """The stream ended by itself."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One batch that was done."""

    batch: int
    rows: int
    aside_rows: int
    channels: int
    seconds: float


def live_folder(out: Path | str) -> Path:
    return Path(out) / "live"


def read(out: Path | str, table: str) -> pa.Table:
    """A live table, without Spark."""
    if table not in TABLES:
        raise WeftError(f"there is no live table {table!r}; there are: {', '.join(TABLES)}")
    return Store(live_folder(out)).read(table)


def set_aside(out: Path | str) -> list[dict[str, str]]:
    """Files that could not be read: path, reason and detail."""
    found = sorted((live_folder(out) / "quarantine").glob("*.json"))
    return sorted((json.loads(path.read_text()) for path in found), key=lambda each: str(each["path"]))


def follow(
    tapes: Path | str,
    out: Path | str,
    master: str | None = None,
    *,
    memory: str = MEMORY,
    rules: Rules | None = None,
    settings: Mapping[str, Any] | None = None,
    rows_max: int = BATCH_ROWS_MAX,
    once: bool = False,
    stop: threading.Event | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    spark: "SparkSession | None" = None,
) -> Manifest | None:
    """Follow tapes until `stop` is set, or with `once` until all that is there now is read.

    `settings` are those of the table sessions; `spark` is a session that runs already. Returns the last manifest, which
    has the counts.
    """
    check(tapes)
    chosen = {each.name: each.default for each in sessions.SETTINGS} | dict(settings or {})
    running = spark or session(master, name="weft follow", memory=memory)
    register(running)
    # It would print what goes wrong in a batch, with a traceback, beside us who tell it.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    follower = Follower(running, Path(tapes), live_folder(out), rules or Rules(), chosen, on_progress)
    _supervised(follower, rows_max, once, stop or threading.Event())
    return follower.store.manifest()


def check(tapes: Path | str) -> None:
    """Better now than after Spark has started."""
    if not Path(tapes).is_dir():
        raise NoTapes(f"there is no folder of tapes at {tapes}")


class Follower:
    """What happens to a batch."""

    def __init__(
        self,
        spark: "SparkSession",
        tapes: Path,
        folder: Path,
        rules: Rules,
        settings: Mapping[str, Any],
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.tapes = tapes.absolute()
        self.folder = folder.absolute()
        self.store = Store(self.folder)
        self.batches = 0
        """Done by this object."""
        self._spark = spark
        self._rules = rules
        self._sessions = sessions.rule(settings)
        self._on_progress = on_progress

    def start(self, rows_max: int, once: bool) -> "StreamingQuery":
        from pyspark.sql import functions as F  # noqa: N812

        self.folder.mkdir(parents=True, exist_ok=True)
        self.store.tidy()
        events = (
            self._spark.readStream.format("weft")
            .option("rows_max", rows_max)
            .option("quarantine", str(self.folder / "quarantine"))
            .schema(_columns())
            .load(str(self.tapes))
            .select(*(F.col(name) for name in COLUMNS))
        )
        writer = events.writeStream.foreachBatch(self.on_batch).option(
            "checkpointLocation", str(self.folder / "checkpoint")
        )
        trigger = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{LOOK_S} seconds")
        return trigger.start()

    def on_batch(self, events: "DataFrame", batch: int) -> None:
        """The whole of a micro-batch. It may be called again with the same number after a crash."""
        if self.store.has(batch):
            return
        began = time.monotonic()
        previous = self.store.manifest()
        found = self._steps(events, self.store.states(previous), batch)
        told = Manifest(
            batch,
            rows=sum(each.rows for each in found) + (previous.rows if previous else 0),
            aside_rows=sum(each.aside_rows for each in found) + (previous.aside_rows if previous else 0),
            made_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            watermarks=dict(previous.watermarks) if previous else {},
        )
        told.watermarks.update({each.channel: each.watermark_us for each in found if each.watermark_us is not None})
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
        self.store.commit(told, previous, tables, states)
        self.store.tidy()
        self.batches += 1
        if self._on_progress is not None:
            rows, aside_rows = sum(each.rows for each in found), sum(each.aside_rows for each in found)
            self._on_progress(Progress(batch, rows, aside_rows, len(found), time.monotonic() - began))

    def _steps(self, events: "DataFrame", states: pa.Table, batch: int) -> list[Result]:
        """Each channel's step, in a task of its own."""
        rules, sessions, now_us = self._rules, self._sessions, time.time_ns() // 1000

        def run(key: tuple[Any, ...], events: pa.Table, states: pa.Table) -> pa.Table:
            channel = key[0].as_py()
            if not events.num_rows:
                return _packed([])
            state = states["state"][0].as_py() if states.num_rows else None
            return _packed([step(channel, state, events, batch=batch, now_us=now_us, rules=rules, sessions=sessions)])

        known = self._spark.createDataFrame(states, "channel STRING, state BINARY")
        together = events.groupBy("channel").cogroup(known.groupBy("channel"))
        return _unpacked(together.applyInArrow(run, _RESULT).toArrow())


def _columns() -> str:
    """The columns that are read, in Spark's language."""
    from weft.record.schema import COLUMNS as ON_TAPE

    kinds = {each.name: each.spark for each in ON_TAPE} | {"channel": "STRING"}
    return ", ".join(f"`{name}` {kinds[name]}" for name in COLUMNS)


def _packed(found: list[Result]) -> pa.Table:
    import polars as pl

    tables = [{name: pl.DataFrame(table) for name, table in each.tables.items()} for each in found]
    return pa.table(
        {
            "channel": pa.array([each.channel for each in found], pa.string()),
            "state": pa.array([each.state for each in found], pa.binary()),
            "tables": pa.array([pack(each) for each in tables], pa.binary()),
            "rows": pa.array([each.rows for each in found], pa.int64()),
            "aside_rows": pa.array([each.aside_rows for each in found], pa.int64()),
            "watermark": pa.array([each.watermark_us for each in found], pa.int64()),
        }
    )


def _unpacked(table: pa.Table) -> list[Result]:
    found = []
    for each in table.to_pylist():
        frames = unpack(each["tables"])
        tables = {name: frame.to_arrow().cast(TABLES[name].schema) for name, frame in frames.items()}
        told = each["rows"], each["aside_rows"], each["watermark"]
        found.append(Result(each["channel"], *told, each["state"], tables))
    return sorted(found, key=lambda result: result.channel)


def _supervised(follower: Follower, rows_max: int, once: bool, stop: threading.Event) -> None:
    """Run the query; start it again after a fault that is known and harmless."""
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
                raise FollowingFailed(_told(problem)) from problem
            log.warning("the stream is started again after a fault of Spark: %s", _told(problem))
        finally:
            query.stop()


def _told(problem: Exception) -> str:
    """The words that matter, which Spark wraps in many others: those of the innermost error in Python, if there is
    one."""
    text = str(problem)
    _, traceback, inner = text.rpartition("Traceback (most recent call last):")
    found = re.search(r"^\w[\w.]*: (.+)$", inner, re.MULTILINE) if traceback else None
    return found[1] if found else text.splitlines()[0]
