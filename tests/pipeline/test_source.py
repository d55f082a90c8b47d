"""Tapes read with `format("broadloom")`, as a batch and as a stream, compared with reading without Spark."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from broadloom.errors import BroadloomError
from broadloom.pipeline.spark_source import register
from broadloom.pipeline.spark_source.data_source import BroadloomDataSource
from broadloom.pipeline.spark_source.offsets import TapeOffset
from broadloom.pipeline.spark_source.read_plan import ReadPlanner
from broadloom.protocol import ChannelName
from broadloom.record import SCHEMA_VERSION
from broadloom.record.arrow_import import pa, pq
from broadloom.record.schema import VERSION_KEY
from tests.pipeline.growing import BEGIN_S, CHANNEL, DAY, FOLDER, Clock, RecordedPeers, on_tape

OTHER = ChannelName("test", "other")


@pytest.fixture(scope="module", autouse=True)
def broadloom_format(spark):
    register(spark)


def grow(folder: Path, messages: int, *, peers=(1, 2, 3), begin_s: float = BEGIN_S, channel=CHANNEL, **given) -> Path:
    """Record a run and return its file."""
    before = set(folder.rglob("*.parquet"))
    with RecordedPeers(folder, Clock(begin_s), peers=peers, channel=channel, **given) as recorded:
        recorded.join()
        for number in range(messages):
            recorded.send(peers[number % len(peers)], delay_s=0.01, step_s=0.1)
    added = sorted(set(folder.rglob("*.parquet")) - before)
    return added[0]


def has_tape_rows(frame, folder: Path) -> bool:
    """Whether the DataFrame has exactly the rows of the tapes."""
    mine = frame.toArrow().sort_by([("run_id", "ascending"), ("ordinal", "ascending")])
    return bool(mine.equals(on_tape(folder).cast(mine.schema)))


class ResumableStream:
    """A stream that is resumed from one checkpoint, and everything it returned."""

    def __init__(self, spark, folder: Path, place: Path, **options) -> None:
        self._spark, self._folder, self._checkpoint, self._options = spark, folder, place, options
        self.batches: list[tuple[int, pa.Table]] = []

    def run(self) -> list[int]:
        """Read everything available. Returns the number of rows of each batch."""
        before = len(self.batches)
        stream = self._spark.readStream.format("broadloom").options(**self._options).load(str(self._folder))

        def keep(frame, batch):
            self.batches.append((batch, frame.toArrow()))

        query = (
            stream.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return [table.num_rows for _, table in self.batches[before:]]

    @property
    def rows(self) -> pa.Table:
        whole = pa.concat_tables([table for _, table in self.batches])
        return whole.sort_by([("run_id", "ascending"), ("ordinal", "ascending")])


def test_batch_read_returns_all_rows_and_pushes_filters_down(spark, tmp_path):
    grow(tmp_path, 100)
    grow(tmp_path, 50, channel=OTHER)
    frame = spark.read.format("broadloom").load(str(tmp_path))
    assert has_tape_rows(frame, tmp_path)
    chosen = frame.where("kind = 'sent' AND sequence <= 10 AND group_id IS NULL")
    assert "Filter (" not in chosen._jdf.queryExecution().executedPlan().toString()  # all are pushed down
    assert chosen.count() == 2 * 3 * 10
    assert frame.where(f"channel = '{FOLDER.partition('=')[2]}' AND event_date = '{DAY}'").count() == 303
    assert frame.where("kind IN ('joined', 'left') AND length(peer) = 16").count() == 6
    assert frame.where("event_time < '2026-05-28 20:26:45'").count() == frame.toArrow().filter(
        pa.compute.field("event_time") < pa.scalar(int((BEGIN_S + 5) * 1e6), pa.timestamp("us", "UTC"))
    ).num_rows  # fmt: skip


def test_read_returns_only_requested_columns(spark, tmp_path):
    grow(tmp_path, 20)
    frame = spark.read.format("broadloom").schema("sequence BIGINT, channel STRING").load(str(tmp_path))
    assert frame.toArrow().column_names == ["sequence", "channel"]
    assert frame.where("sequence IS NOT NULL").count() == 60
    with pytest.raises(Exception, match="a tape has no column 'color'"):
        spark.read.format("broadloom").schema("color STRING").load(str(tmp_path)).count()


def test_stream_reads_each_row_once(spark, tmp_path):
    tapes = tmp_path / "tapes"
    streamed = ResumableStream(spark, tapes, tmp_path / "checkpoint", rows_max="400")
    for run in range(3):
        grow(tapes, 100, begin_s=BEGIN_S + 10 * run)
    assert streamed.run() == [303, 303, 303]  # two would exceed rows_max
    # A file that arrives after later files of its run, for example because it was copied.
    elsewhere = tmp_path / "elsewhere"
    with RecordedPeers(elsewhere, Clock(), peers=(7, 8), file_bytes_max=1, batch_rows=40) as recorded:
        for _ in range(100):
            recorded.send(7, delay_s=0.01, step_s=0.1)
    files = sorted(elsewhere.rglob("*.parquet"))
    assert len(files) > 2
    for path in files[1:]:
        shutil.move(path, tapes / FOLDER / f"event_date={DAY}" / path.name)
    streamed.run()
    shutil.move(files[0], tapes / FOLDER / f"event_date={DAY}" / files[0].name)
    before = streamed.rows.num_rows
    assert streamed.run() == [on_tape(tapes).num_rows - before]
    assert streamed.rows.equals(on_tape(tapes).cast(streamed.rows.schema))
    assert [batch for batch, _ in streamed.batches] == list(range(len(streamed.batches)))


def test_large_files_are_split_and_read_in_time_order(spark, tmp_path):
    tapes = tmp_path / "tapes"
    # Two runs at the same time, each one file with several row groups.
    for peer in (1, 11):
        with RecordedPeers(
            tapes, Clock(), peers=(peer, peer + 1), row_group_bytes_max=20_000, batch_rows=200
        ) as recorded:
            for _ in range(1000):
                recorded.send(peer, delay_s=0.0, step_s=0.1)
    for path in tapes.rglob("*.parquet"):
        assert pq.read_metadata(path).num_row_groups > 3
    streamed = ResumableStream(spark, tapes, tmp_path / "checkpoint", rows_max="900")
    sizes = streamed.run()
    assert len(sizes) > 3
    assert max(sizes) <= 900
    assert streamed.rows.equals(on_tape(tapes).cast(streamed.rows.schema))
    newest = None
    for _, table in streamed.batches:
        oldest = min(table["event_time"].to_pylist())
        # Read run by run, the second run would start 100 s before the end of the first.
        assert newest is None or (newest - oldest).total_seconds() < 60
        newest = max(table["event_time"].to_pylist())


def test_unreadable_files_are_excluded_and_reported(spark, tmp_path):
    tapes, quarantine = tmp_path / "tapes", tmp_path / "quarantine"
    good = grow(tapes, 100)
    place = good.parent
    expected = on_tape(tapes)
    table = pq.read_table(good, partitioning=None)
    (place / "cut.parquet").write_bytes(good.read_bytes()[:-100])
    pq.write_table(pa.table({"x": [1]}), place / "foreign.parquet")
    later = {**table.schema.metadata, VERSION_KEY: str(SCHEMA_VERSION + 1).encode()}
    pq.write_table(table.replace_schema_metadata(later), place / "later.parquet")
    pq.write_table(table.drop_columns(["hops"]), place / "incomplete.parquet")
    shutil.copy(good, place / "copy.parquet")
    (tapes / "channel=0123456789abcdef" / f"event_date={DAY}").mkdir(parents=True)
    shutil.copy(good, tapes / "channel=0123456789abcdef" / f"event_date={DAY}" / "moved.parquet")
    streamed = ResumableStream(spark, tapes, tmp_path / "checkpoint", quarantine=str(quarantine))
    assert streamed.run() == [303]
    assert streamed.rows.equals(expected.cast(streamed.rows.schema))
    found = {Path(each["path"]).name: each["reason"] for each in map(_json, quarantine.glob("*.json"))}
    assert found == {
        "cut.parquet": "unreadable",
        "foreign.parquet": "not_a_tape",
        "later.parquet": "newer_version",
        "incomplete.parquet": "missing_column",
        "copy.parquet": "duplicate",
        "moved.parquet": "wrong_directory",
    }
    assert spark.read.format("broadloom").load(str(tapes)).count() == 303
    # A repaired file is read.
    shutil.rmtree(tapes / "channel=0123456789abcdef")
    shutil.copy(grow(tmp_path / "elsewhere", 10, peers=(5, 6)), place / "cut.parquet")
    assert streamed.run() == [22]


def copies_of(tapes: Path, good: Path, name: str) -> Path:
    """Copy a file under this name, and both into the folder of another day."""
    copy = good.with_name(name.format(run=good.name[:24]))
    another_day = good.parent.with_name("event_date=2026-05-29")
    another_day.mkdir()
    for source, target in ((good, copy), (good, another_day / good.name), (good, another_day / copy.name)):
        shutil.copy(source, target)
    return copy


def test_copied_file_is_counted_once(spark, tmp_path):
    tapes = tmp_path / "tapes"
    good = grow(tapes, 100)
    before = ResumableStream(spark, tapes, tmp_path / "before")
    assert before.run() == [303]
    copies_of(tapes, good, "{run}-000077.parquet")
    assert before.run() == []
    assert spark.read.format("broadloom").load(str(tapes)).count() == 303


@pytest.mark.parametrize("name", ["20260528T202640-deadbeef-000001.parquet", "{run}-000077.parquet", "a.parquet"])
def test_copied_file_is_planned_once_whatever_its_name(tmp_path, name):
    good = grow(tmp_path, 100)
    planner = ReadPlanner(str(tmp_path), None)
    read = planner.next_offset(TapeOffset())
    copy = copies_of(tmp_path, good, name).relative_to(tmp_path).as_posix()
    assert planner.next_offset(read).to_json() == read.to_json()
    (task,) = planner.tasks(TapeOffset(), planner.next_offset(TapeOffset()))
    assert len(task.ranges) == 1
    # A batch that was planned with the copy is repeated with the copy.
    planned = TapeOffset()
    planned.advance(copy, 1, 1)
    (task,) = planner.tasks(TapeOffset(), planned)
    assert [each.path for each in task.ranges] == [copy]


def test_damaged_page_excludes_its_row_group(spark, tmp_path):
    tapes, quarantine = tmp_path / "tapes", tmp_path / "quarantine"
    with RecordedPeers(tapes, Clock(), peers=(1, 2), row_group_bytes_max=20_000, batch_rows=200) as recorded:
        for _ in range(500):
            recorded.send(1, delay_s=0.0, step_s=0.1)
    (path,) = tapes.rglob("*.parquet")
    found = pq.read_metadata(path)
    damaged = found.row_group(1)
    data = bytearray(path.read_bytes())
    column = damaged.column(found.schema.names.index("event_time"))
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 0xFF
    path.write_bytes(data)
    frame = spark.read.format("broadloom").option("quarantine", str(quarantine)).load(str(tapes))
    assert frame.count() == found.num_rows - damaged.num_rows
    (report,) = map(_json, quarantine.glob("*.json"))
    assert report["reason"] == "unreadable"
    assert f"row group 1 ({damaged.num_rows} rows)" in report["detail"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"plane": "true"}, "has no option 'plane'"),
        ({"path": "/nowhere/at/all"}, "no directory of tapes at /nowhere/at/all"),
        ({"channel": "chess/club"}, "a live channel has no end"),
        ({}, "option 'path' is required"),
    ],
)
def test_invalid_options_raise_clear_errors(options, words):
    source = BroadloomDataSource(options)
    with pytest.raises(BroadloomError, match=words):
        source.reader(StructType([])).partitions()


def test_spark_shows_the_error_of_an_option(spark):
    with pytest.raises(Exception, match="has no option 'plane'"):
        spark.read.format("broadloom").options(plane="true").load().count()


def _json(path: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(path.read_text())
    return found
