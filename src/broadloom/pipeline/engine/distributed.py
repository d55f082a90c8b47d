"""All stages as Spark jobs, for tapes that do not fit a task.

What a stage leaves for the next one is an Arrow file in the folder of the build, under a name with the attempt; the
next stage gets the names that were returned.
"""

import io
import math
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from broadloom.pipeline.analysis.link_crossings import crossings, fastest, sampled
from broadloom.pipeline.engine import scheduler
from broadloom.pipeline.engine.events import ARROW_SUFFIX, load, plain
from broadloom.pipeline.engine.parts import PART_ROWS, Part
from broadloom.pipeline.engine.scans import crossing_rows
from broadloom.pipeline.engine.scheduler import Blob, Blobs
from broadloom.pipeline.engine.stages import (
    INVOICED,
    RUN_SPANS,
    Job,
    TableWriter,
    WrittenFile,
    audit_inputs,
    build_all_channels,
    build_stage,
    clock_offsets,
    pair,
    scan,
)
from broadloom.pipeline.table import ChannelInputs, Stage
from broadloom.pipeline.tables.link_latency import latency_histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext

WORK = ".work"
_HASH_SEED = 7
_CROSSINGS, _WRITTEN = "crossings", "written"


class Merge(NamedTuple):
    """Destination of the scans of a channel."""

    channel: str
    number: int


class Cross(NamedTuple):
    """Destination of some messages of a channel."""

    channel: str
    bucket: int
    event_count: int
    """Of the channel."""


@dataclass(frozen=True, slots=True)
class Merged:
    channel: str
    index: int
    scans: dict[str, str]
    """Paths of Arrow files."""
    tables: dict[str, str]
    spans: pl.DataFrame | None
    files: list[WrittenFile]


@dataclass(frozen=True, slots=True)
class Crossed:
    channel: str
    path: str
    fastest: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Pair:
    """Task: the second scan of a part."""

    part: Part
    index: int
    merged: Merged


def run_distributed(
    job: Job, spark: "SparkContext", parts: Sequence[Part], on_phase: "Callable[[str], None]"
) -> list[WrittenFile]:
    (Path(job.folder) / WORK).mkdir(parents=True, exist_ok=True)
    if any(each.cuts > 1 for each in parts):
        on_phase("cutting large parts by receiver")
        parts = _cut_large_parts(job, spark, parts)
        job = replace(job, flawed=None)
    channels = sorted({each.channel for each in parts})
    on_phase("scanning the tapes")
    rows = {each: sum(part.rows for part in parts if part.channel == each) for each in channels if job.has_clocks}
    destinations: list[Merge | Cross] = [
        *(Merge(channel, index) for index, channel in enumerate(channels)),
        *(
            Cross(channel, bucket, count)
            for channel, count in rows.items()
            for bucket in range(max(1, math.ceil(count / PART_ROWS)) if job.has_crossings else 1)
        ),
    ]
    found = scheduler.exchange(
        spark, partial(_scan, job, destinations), parts, partial(_merge_or_cross, job), destinations
    )
    merged = {each.channel: each for each in found if isinstance(each, Merged)}
    crossed = [each for each in found if isinstance(each, Crossed)]
    clocks = None
    if job.has_clocks:
        on_phase("estimating clocks")
        spans = pl.concat([each.spans for each in merged.values() if each.spans is not None])
        clocks = clock_offsets([each.fastest for each in crossed if each.fastest.height], spans)
    on_phase("pairing deliveries and building tables")
    tasks: list[object] = [*merged.values()]
    if job.has_crossings:
        tasks += crossed
    if job.has_pairs:
        tasks += [Pair(each, index, merged[each.channel]) for index, each in enumerate(parts)]
    finished = scheduler.exchange(
        spark, partial(_build, job, clocks, merged), tasks, partial(_finish, job, clocks), list(merged.values())
    )
    on_phase("building tables over all channels")
    files = [file for each in merged.values() for file in each.files] + [file for some in finished for file in some]
    files += _over_all_channels(job, files, clocks)
    return files


# -- the first job


def _scan(job: Job, destinations: Sequence[Merge | Cross], part: Part) -> Iterator[Blob]:
    events = load(part.files, job.scan_columns(), job.flawed)
    merge = next(
        index for index, each in enumerate(destinations) if isinstance(each, Merge) and each.channel == part.channel
    )
    for name, found in scan(job, events).items():
        yield Blob(merge, name, _to_blob(found))
    cross = {
        index: each.event_count
        for index, each in enumerate(destinations)
        if isinstance(each, Cross) and each.channel == part.channel
    }
    if not cross:
        return
    rows = crossing_rows(events) if job.has_crossings else sampled(events, next(iter(cross.values())))
    del events
    if len(cross) == 1:
        yield Blob(next(iter(cross)), _CROSSINGS, _to_blob(rows))
        return
    # The sequence alone decides: it is a number, and equal for all rows of a message.
    bucket = rows["sequence"].hash(_HASH_SEED) % len(cross)
    for number, index in enumerate(cross):
        yield Blob(index, _CROSSINGS, _to_blob(rows.filter(bucket == number)))


def _merge_or_cross(job: Job, destination: Merge | Cross, blobs: Blobs) -> Merged | Crossed:
    attempt = scheduler.attempt()
    if isinstance(destination, Cross):
        rows = _from_blobs(blobs.pop(_CROSSINGS))
        path = _work_path(job, f"{destination.channel}-{destination.bucket}-crossings", attempt)
        if job.has_crossings:
            crossings(rows).write_ipc(path, compression="lz4")
        return Crossed(destination.channel, path, fastest(crossings(sampled(rows, destination.event_count))))
    scans = {name: _from_blobs(each) for name, each in blobs.items()}
    inputs = job.inputs(destination.channel, scans)
    writer = TableWriter(job, f"{destination.number:05}", attempt)
    build_stage(job, Stage.MERGE, inputs, writer)
    scan_paths = {}
    for name, each in scans.items():
        if name != "messages":
            scan_paths[name] = _work_path(job, f"{destination.channel}-scan-{name}", attempt)
            each.write_ipc(scan_paths[name], compression="lz4")
    table_paths = {}
    for name, table in inputs.tables.items():
        table_paths[name] = _work_path(job, f"{destination.channel}-table-{name}", attempt)
        table.write_ipc(table_paths[name])
    spans = plain(scans["peer_spans"].select(RUN_SPANS)) if job.has_clocks else None
    return Merged(destination.channel, destination.number, scan_paths, table_paths, spans, writer.files)


# -- the second job


def _build(job: Job, clocks: pl.DataFrame | None, merged: dict[str, Merged], task: object) -> Iterator[Blob]:
    attempt = scheduler.attempt()
    if isinstance(task, Crossed):
        channel = merged[task.channel]
        inputs = _inputs(job, channel, clocks, ["membership"])
        links_up = inputs.scan("membership").filter(pl.col("kind") == "link_up")
        histogram = latency_histogram(pl.read_ipc(task.path), inputs.clocks, links_up)
        yield Blob(_destination(merged, task.channel), "link_histogram", _to_blob(histogram))
        return
    if isinstance(task, Pair):
        inputs = _inputs(job, task.merged, clocks)
        writer = TableWriter(job, f"{task.index:05}", attempt)
        audit = audit_inputs(job, inputs) if "delivery_balances" in job.wanted else None
        events = load(task.part.files, list(dict.fromkeys([*job.pair_columns(), "event_time"])), job.flawed)
        found = pair(job, task.part.channel, events, inputs["messages"], audit, clocks, writer)
        destination = _destination(merged, task.part.channel)
    else:
        assert isinstance(task, Merged)
        inputs = _inputs(job, task, clocks)
        writer = TableWriter(job, f"{task.index:05}", attempt)
        build_stage(job, Stage.CHANNEL, inputs, writer)
        found, destination = {}, _destination(merged, task.channel)
    for name, each in found.items():
        yield Blob(destination, name, _to_blob(each))
    yield Blob(destination, _WRITTEN, pickle.dumps(writer.files))


def _finish(job: Job, clocks: pl.DataFrame | None, merged: Merged, blobs: Blobs) -> list[WrittenFile]:
    files = [file for each in blobs.pop(_WRITTEN) for file in pickle.loads(each)]
    inputs = _inputs(job, merged, clocks)
    inputs.scans |= {name: _from_blobs(each) for name, each in blobs.items()}
    writer = TableWriter(job, f"{merged.index:05}", scheduler.attempt())
    build_stage(job, Stage.FINISH, inputs, writer)
    return files + writer.files


def _over_all_channels(job: Job, files: list[WrittenFile], clocks: pl.DataFrame | None) -> list[WrittenFile]:
    tables = {}
    if "invoices" in job.wanted:
        for name in INVOICED:
            paths = [Path(job.folder) / name / each.name for each in files if each.table == name]
            tables[name] = pl.concat([pl.read_parquet(path, hive_partitioning=False) for path in paths])
    writer = TableWriter(job, "all")
    build_all_channels(job, clocks, tables, writer)
    return writer.files


def _inputs(job: Job, merged: Merged, clocks: pl.DataFrame | None, scans: Sequence[str] | None = None) -> ChannelInputs:
    chosen = merged.scans if scans is None else {name: merged.scans[name] for name in scans}
    inputs = job.inputs(merged.channel, {name: pl.read_ipc(path) for name, path in chosen.items()}, clocks)
    if scans is None:
        inputs.tables = {name: pl.read_ipc(path) for name, path in merged.tables.items()}
    return inputs


def _destination(merged: dict[str, Merged], channel: str) -> int:
    return list(merged).index(channel)


# -- parts that are too large


def _cut_large_parts(job: Job, spark: "SparkContext", parts: Sequence[Part]) -> list[Part]:
    """Read the files of large parts once, and write their rows again, by receiver."""
    large = [each for each in parts if each.cuts > 1]
    pieces = [(part, number) for part in large for number in range(part.cuts)]
    first = [pieces.index((part, 0)) for part in large]
    tasks = [(path, first[index], part.cuts) for index, part in enumerate(large) for path in part.files]
    columns = list(dict.fromkeys([*job.scan_columns(), *job.pair_columns(), "event_time"]))

    def send(task: tuple[str, int, int]) -> Iterator[Blob]:
        path, start, count = task
        events = load([path], columns, job.flawed)
        piece = (events["peer"].cast(pl.String).hash(_HASH_SEED) % count).fill_null(0)
        for number in range(count):
            yield Blob(start + number, "rows", _to_blob(events.filter(piece == number)))

    def receive(piece: tuple[Part, int], blobs: Blobs) -> Part:
        part, number = piece
        rows = _from_blobs(blobs["rows"])
        name = f"{part.channel}-{large.index(part)}-{number}-piece"
        path = _work_path(job, name, scheduler.attempt())
        rows.write_ipc(path, compression="lz4")
        return Part(part.channel, (path,), rows.height)

    cut = scheduler.exchange(spark, send, tasks, receive, pieces)
    return [*(each for each in parts if each.cuts == 1), *(each for each in cut if each.rows)]


# -- blobs and files


def _to_blob(rows: pl.DataFrame) -> bytes:
    target = io.BytesIO()
    rows.write_ipc(target, compression="lz4")
    return target.getvalue()


def _from_blobs(blobs: list[bytes]) -> pl.DataFrame:
    return pl.concat([pl.read_ipc(io.BytesIO(each)) for each in blobs])


def _work_path(job: Job, name: str, attempt: int) -> str:
    return str(Path(job.folder) / WORK / f"{name}-{attempt}{ARROW_SUFFIX}")
